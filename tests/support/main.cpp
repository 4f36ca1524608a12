// main() of every test program. Tests of the CUDA backend are compiled with HALFSTEP_TEST_CUDA: without a device they
// print the reason and exit with 77, which marks them as skipped.
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
  hs::set_caching(false);  // so that the emulator and compute-sanitizer detect every overrun
#endif
  return doctest::Context(argc, argv).run();
}
