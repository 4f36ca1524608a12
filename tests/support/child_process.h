// Runs other programs, and test cases of this one in a separate process, for code that reads environment variables only
// once.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "source_dir.h"

namespace hs::test {

struct ChildResult {
  int status = -1;  // exit code
  std::string output;
};

// Runs a command line of the shell, and collects its stdout.
inline ChildResult run_shell(const std::string& command) {
  ChildResult result;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  while (const size_t bytes = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, bytes);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

// `variables`: "NAME=value NAME=value". The case is decorated with doctest::skip(), so that only this finds it.
inline ChildResult run_child(const std::string& variables, const std::string& test_case) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  return run_shell(variables + " " HALFSTEP_EMULATOR "'" + program + "' --no-skip --test-case='" + test_case +
                   "' 2>&1");
}

// What the child of a fork, which runs the body, returns as its exit code; -1: it was killed.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whether the processes of these numbers are gone. Waits for up to five seconds: one that was ended may still be there
// for a moment, until its new parent has looked.
inline bool are_gone(const std::vector<std::string>& processes) {
  const auto is_gone = [](const std::string& process) { return kill(std::stoi(process), 0) != 0 && errno == ESRCH; };
  for (int i = 0; i < 500; ++i) {
    if (std::ranges::all_of(processes, is_gone)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace hs::test
