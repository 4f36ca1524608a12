// main() of every test program. Compiled with HALFSTEP_TEST_CUDA for the tests of the CUDA backend: without a device
// they are skipped, with the reason, by exit code 77.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "engine/device.h"
#include "engine/storage.h"

int main(int argc, char** argv) {
#ifdef HALFSTEP_TEST_CUDA
  if (const std::string reason = hs::why_unavailable(hs::Device::cuda); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  hs::set_caching(false);  // the emulator and compute-sanitizer then see every overrun
#endif
  return doctest::Context(argc, argv).run();
}
