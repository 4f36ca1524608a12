// For tests of the CUDA backend: what an error of the device says, and the emulator's controls, where the program runs
// on it (HALFSTEP_TEST_EMULATED).
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "engine/error.h"

namespace hs::test {

// What a call that fails with exit code 7 says.
template <class Call>
std::string device_error(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::device);
    return error.what();
  }
  return "no error";
}

}  // namespace hs::test

#ifdef HALFSTEP_TEST_EMULATED
#include "emulator/emulator.h"

namespace hs::test {

// A fresh emulator that prints no reports; as it was before at the end of the scope.
class Emulator {
 public:
  Emulator() {
    emulator::options().print = false;
    emulator::reset();
  }
  ~Emulator() {
    emulator::options() = before_;
    emulator::reset();
  }
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

 private:
  emulator::Options before_ = emulator::options();
};

}  // namespace hs::test
#endif
