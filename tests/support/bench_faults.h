// The fault table: under each fault halfstep-bench must exit with the documented code and one line on stderr, leave
// nothing behind, and use bounded time and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/bench_program.h"

namespace hs::test {

struct Fault {
  std::string name;
  Words arguments;  // paths are relative to a fresh folder in which the program runs
  int exit_code;
  std::string line;         // part of the one line on stderr
  double seconds = 20;      // limit; generous, because other tests share the cores
  int64_t megabytes = 500;  // limit on resident memory
  std::function<void(const std::filesystem::path& folder)> setup = {};  // creates the files that the program finds
  std::vector<std::string> variables = {};                              // NAME=value
  std::function<void()> prepare = {};  // runs in the child just before the program: limits, signals, user
};

// Runs the program and checks all of the above: stdout is empty, stderr is the one line, and afterwards the folder
// contains the same files with the same contents and the run's own TMPDIR is empty.
void check_fault(const Fault& fault);

}  // namespace hs::test
