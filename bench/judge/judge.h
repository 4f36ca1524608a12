// Judges kernels: "right", and how many times as fast as another variant, or the first reason why not. Each is judged
// in a process of its own, so that a crash is a sentence, too. docs/judge.md says what each check can tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cli/json_file.h"

namespace hs::bench::judge {

struct JudgeOptions {
  std::string variant;  // SLOT=VARIANT; "": all that the loaded plug-ins have registered
  std::string against;  // the variant to be faster than; "": the one that a call takes without the plug-in
  bool quick = false;   // about ten seconds: fewer rows, draws and rounds
  int64_t batch = 64;   // of the timed calls
  uint64_t seed = 0;    // of everything that is drawn: another one for each judgement
};

// A verdict for each variant: slot, variant, device, refused_by (the check, null: right), reason, text, seconds (that
// judging took), checks (that it has passed: name, runs), timed (call, against, seconds of both, rounds, ratio), and
// untimed, if nothing is. Throws Error: usage (no such variant), device (those for CUDA), io (no process can be
// started).
std::vector<Json> judge(const JudgeOptions& options);
std::string text_of(const Json& verdict);  // "right and 1.31 times as fast as direct (1.20 to 1.42)"

}  // namespace hs::bench::judge
