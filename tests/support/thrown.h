// Errors that a test expects.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "engine/error.h"

namespace hs::test {

// The message of the Error that the call throws, which must have this code.
inline std::string error_of(const std::function<void()>& call, ExitCode code = ExitCode::usage) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("nothing was thrown");
  return "";
}

}  // namespace hs::test
