// For tests of the CUDA backend: the message of a device error, and the emulator's controls if the program runs on it
// (HALFSTEP_TEST_EMULATED).
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "engine/error.h"
#include "engine/non_copyable.h"

namespace hs::test {

// The message of a call that fails with exit code 7.
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

// Resets the emulator and silences its reports; at the end of the scope, restores its options and resets it again.
class Emulator : NonCopyable {
 public:
  Emulator() {
    emulator::options().print = false;
    emulator::reset();
  }
  ~Emulator() {
    emulator::options() = before_;
    emulator::reset();
  }

 private:
  emulator::Options before_ = emulator::options();
};

// Calls body() with streams that run late, in as many random orders, and wants no report.
template <class Body>
void for_each_delay(uint64_t orders, const Body& body) {
  const Emulator fresh;
  emulator::options().delay_streams = true;
  for (uint64_t seed = 1; seed <= orders; ++seed) {
    CAPTURE(seed);
    emulator::options().seed = seed;
    emulator::reset();
    body();
    CHECK(emulator::take_reports().empty());
  }
}

// While it lives, no order of threads and blocks may change a result, and no block sees what another has not published.
struct EveryOrder {
  EveryOrder() {
    emulator::options().every_order = emulator::options().private_pages = emulator::options().print = true;
  }
  const Emulator fresh;
};

}  // namespace hs::test
#else
namespace hs::test {

// A device has one order, and its streams are as late as they are.
struct [[maybe_unused]] EveryOrder {};

template <class Body>
void for_each_delay(uint64_t, const Body& body) {
  body();
}

}  // namespace hs::test
#endif
