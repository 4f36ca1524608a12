#include "kernels/cpu/amx.h"

#include <cstdio>

#include "engine/cpu_features.h"

#if defined(__x86_64__)

namespace hs {

bool amx::is_usable() {
  static const bool usable = [] {
    if (!cpu_features().amx_bf16) return false;
    if (tiles_multiply<HardwareTiles>()) return true;
    std::fputs(
        "halfstep: WARNING: the AMX tiles of this machine give wrong products and are not used; HALFSTEP_ISA="
        "avx512_bf16 switches them off without this test\n",
        stderr);
    return false;
  }();
  return usable;
}

}  // namespace hs

#endif
