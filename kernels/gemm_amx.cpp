// gemm for bf16 on AMX tiles. Read first: kernels/gemm_blocked.h, kernels/amx.h.
#include "kernels/gemm_amx.h"

#include <cstdio>

#include "engine/cpu_features.h"

namespace hs {

#if defined(__x86_64__)

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

namespace {

bool supports(const Gemm& call) {
  return call.a.dtype() == DType::bf16 && is_same_or_f32(call.a, call.c) && amx::is_usable();
}

REGISTER_KERNEL(gemm, cpu, "amx",
                {.run = blocked::gemm_blocked<blocked::TileProduct<amx::HardwareTiles>>,
                 .supported = supports,
                 .rank = 20,
                 .layout = "rows"});

}  // namespace

#endif

}  // namespace hs
