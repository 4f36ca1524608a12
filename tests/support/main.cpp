// main() of every test program. Tests of the CUDA backend are compiled with HALFSTEP_TEST_CUDA: without a device they
// print the reason and exit with 77, which marks them as skipped. So does a cap of the instruction sets that takes
// nothing from this CPU: the entry without it runs the same.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "engine/cpu_features.h"
#include "engine/device.h"
#include "engine/error.h"
#include "engine/storage.h"

namespace {

bool caps_nothing() try {
  const hs::CpuFeatures &capped = hs::cpu_features(), whole = hs::find_cpu_features("");
  return !capped.cap.empty() && capped.avx2 == whole.avx2 && capped.avx512 == whole.avx512 &&
         capped.avx512_bf16 == whole.avx512_bf16 && capped.avx512_fp16 == whole.avx512_fp16 &&
         capped.amx_bf16 == whole.amx_bf16 && capped.neon_bf16 == whole.neon_bf16 &&
         capped.neon_fp16 == whole.neon_fp16;
} catch (const hs::Error&) {
  return false;  // of a wrong cap: a test asks for the error
}

}  // namespace

int main(int argc, char** argv) {
  if (caps_nothing()) {
    std::printf("skipped: HALFSTEP_ISA=%s takes nothing from this CPU\n", hs::cpu_features().cap.c_str());
    return 77;
  }
#ifdef HALFSTEP_TEST_CUDA
  if (const std::string reason = hs::why_unavailable(hs::Device::cuda); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  hs::set_caching(false);  // so that the emulator and compute-sanitizer detect every overrun
#endif
  return doctest::Context(argc, argv).run();
}
