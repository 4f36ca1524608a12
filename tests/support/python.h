// Runs tests/models/interchange.py, or another script, with a Python that has the packages that other programs open our
// files with: $HALFSTEP_PYTHON, or build/python of the checkout (made by .ci/run), or python3.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "source_dir.h"
#include "tests/support/child_process.h"

namespace hs::test {

// `words`: the script's arguments, quoted for a shell.
inline ChildResult run_python(const std::string& words, const std::string& script = "tests/models/interchange.py") {
  const std::filesystem::path top = HALFSTEP_SOURCE_DIR, local = top / "build/python/bin/python";
  const char* given = std::getenv("HALFSTEP_PYTHON");
  const std::string python = given ? given : std::filesystem::exists(local) ? local.string() : "python3";
  // Without what CI loads for this program: a sanitizer would report what Python does not free.
  return run_shell("LD_PRELOAD= '" + python + "' '" + (top / script).string() + "' " + words);
}

// Says so if they are missing.
inline bool python_has(const std::string& packages) {
  if (run_python("has " + packages + " 2>/dev/null").status == 0) return true;
  MESSAGE("skipped: no Python with " << packages);
  return false;
}

}  // namespace hs::test
