// The fault table: under each fault halfstep-bench must exit with the documented code and one line on stderr, leave
// nothing behind, and use bounded time and memory.
#pragma once

#include <cstdint>

#include "tests/support/bench_program.h"

namespace hs::test {

struct Fault {
  std::string line;  // words apart by blanks; paths are relative to a fresh folder in which the program runs
  int code;
  std::string part;                                                     // of the one line on stderr
  std::function<void(const std::filesystem::path& folder)> setup = {};  // creates the files that the program finds
  std::function<void()> prepare = {};       // runs in the child just before the program: limits, signals, user
  std::vector<std::string> variables = {};  // NAME=value
  double seconds = 60;                      // limit; generous, because other tests share the cores
  int64_t megabytes = 700;                  // limit on resident memory, where AddressSanitizer keeps none
};

// Runs the program and checks all of the above: stdout is empty, stderr is the one line, and afterwards the folder
// contains the same files with the same contents and the run's own TMPDIR is empty.
void check_fault(const Fault& fault);
void check_faults(const std::vector<Fault>& faults);

}  // namespace hs::test
