// Runs tests/models/interchange.py with a Python that has the packages that other programs open our files with:
// $HALFSTEP_PYTHON, or build/python of the checkout (made by .ci/run), or python3.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace hs::test {

struct PythonResult {
  int status = -1;     // exit code
  std::string output;  // stdout
};

// `words`: the script's arguments, quoted for a shell.
inline PythonResult run_python(const std::string& words) {
  const std::filesystem::path top = HALFSTEP_SOURCE_DIR, local = top / "build/python/bin/python";
  const char* given = std::getenv("HALFSTEP_PYTHON");
  const std::string python = given ? given : std::filesystem::exists(local) ? local.string() : "python3";
  const std::string command = "'" + python + "' '" + (top / "tests/models/interchange.py").string() + "' " + words;
  PythonResult result;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  while (const size_t bytes = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, bytes);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

// Says so if they are missing.
inline bool python_has(const std::string& packages) {
  if (run_python("has " + packages + " 2>/dev/null").status == 0) return true;
  MESSAGE("skipped: no Python with " << packages);
  return false;
}

}  // namespace hs::test
