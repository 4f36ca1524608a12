// Judges kernels: one verdict, "right" and how many times as fast as another variant, or the first reason why not. The
// plug-in runs in processes of its own (subject.cpp); all that decides is in this one. docs/judge.md says what each
// check can tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/judge/timing.h"

namespace hs::bench::judge {

struct JudgeOptions {
  std::string plugin, shown;   // a shared object, and what messages call it; "": `variant` is of the program's own
  std::string variant;         // SLOT=VARIANT; "": all that the plug-in registers
  std::string device = "all";  // or "cpu", "cuda" or "emulated": variants of it alone
  std::string against;         // the variant to be faster than; "": the one that a call takes without the plug-in
  bool quick = false;          // about ten seconds: fewer rows, draws and rounds
  int64_t batch = 64;          // of the timed calls
  uint64_t seed = 0;           // of everything that is drawn: another one for each judgement
};

struct Check {
  std::string name;
  int64_t runs = 0;  // of rows, or rounds of timed calls
};

struct Verdict {
  std::string slot, variant = {};
  Device device = Device::cpu;
  std::string refused_by = {}, reason = {};  // the check and its finding; empty: right
  std::vector<Check> checks = {};            // that it has passed
  std::vector<TimedResult> timed = {};
  std::string untimed = {};  // why nothing is timed
  double seconds = 0;        // that judging took

  std::string text() const;  // "right and 1.31 times as fast as direct"
};

// One verdict for each variant. Throws Error: what loading a plug-in throws; usage (no such variant, or none for the
// device, or no slot that the op table reaches); device (no isolation on this system, or of a GPU).
std::vector<Verdict> judge(const JudgeOptions& options);

// The subject: a process that has loaded a plug-in, confined itself, and does what the judge asks (wire.h). Whatever
// the plug-in does to it, it cannot reach the judge: references, clock and verdict are over here. If the program was
// started as one, serves until the judge has gone. main() calls it before anything else.
bool serve_as_subject(int argc, const char* const* argv);

}  // namespace hs::bench::judge
