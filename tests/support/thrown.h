// Errors that a test expects.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "engine/error.h"

namespace hs::test {

// The Error that the call throws.
inline Error thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  return {ExitCode::ok, ""};
}

// Its message. It must have this code.
inline std::string error_of(const std::function<void()>& call, ExitCode code = ExitCode::usage) {
  const Error error = thrown_by(call);
  CHECK(error.code() == code);
  return error.what();
}

}  // namespace hs::test
