// For tests of the CUDA backend: the emulator's controls, where the program runs on it (HALFSTEP_TEST_EMULATED).
#pragma once

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
