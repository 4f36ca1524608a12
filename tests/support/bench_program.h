// Runs halfstep-bench as a user does, as a child process, and captures its exit code, stdout and stderr. It finds no
// data set and no home, so the digits are synthetic.
#pragma once

#include <sys/resource.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace hs::test {

using nlohmann::json;
using Words = std::vector<std::string>;

struct Ended {
  int code = -1;    // exit code
  int signal = 0;   // the signal that killed it
  std::string out;  // stdout
  std::string err;  // stderr
  double seconds = 0;
  int64_t megabytes = 0;  // largest resident memory
};

struct Surroundings {
  std::string stdout_file = {};             // instead of a pipe; "closed": none at all
  std::filesystem::path folder = {};        // working directory
  std::vector<std::string> variables = {};  // NAME=value
  rlim_t file_limit = RLIM_INFINITY;        // the largest file that it may write
  // Receives stderr so far and returns a signal to send (0: none yet). Called every few milliseconds.
  std::function<int(const std::string& err)> ask = {};
  std::function<void()> prepare = {};  // runs in the child just before the program
  double patience = 0;                 // seconds after which it is killed, 0: never
};

std::string bench_program();  // its path
bool has_python3();           // which `bench peers` needs; prints a message if it is missing
Ended run_bench(const Words& words, const Surroundings& around = {});
// Splits the line into arguments at spaces.
Ended run_bench_line(const std::string& line, const Surroundings& around = {});
// The same, where another exit code than 0 ends the test.
Ended run_successfully(const std::string& line, const Surroundings& around = {});
// What --dry-run prints, which writes no file.
std::string plan_of(const std::string& line);
// Returns the record from `--json -`. Fails the test if the exit code is not 0.
json record_of(const std::string& line, const Surroundings& around = {});

// Checks that stdout is empty and stderr is one line that starts with the program's name and contains `part`.
void check_one_line(const Ended& ended, int code, const std::string& part);
struct Mistake {
  std::string line;
  int code;
  const char* part;
};
void check_mistakes(const std::vector<Mistake>& mistakes, const Surroundings& around = {});

std::vector<std::string> lines_of(const std::string& text);
bool contains(const std::string& text, const std::string& part);

}  // namespace hs::test
