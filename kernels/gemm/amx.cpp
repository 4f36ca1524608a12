// gemm for bf16 on AMX tiles. Read first: kernels/gemm/blocked.h, kernels/cpu/amx.h.
#include "kernels/gemm/amx.h"

namespace hs {

#if defined(__x86_64__)

namespace {

bool supports(const Gemm& call) {
  return call.a.dtype() == DType::bf16 && is_same_or_f32(call.a, call.c) && amx::is_usable();
}

REGISTER_KERNEL(gemm, cpu, "amx",
                {.run = blocked::gemm_blocked<blocked::TileProduct<amx::HardwareTiles>>,
                 .supported = supports,
                 .workspace = blocked::workspace<blocked::TileProduct<amx::HardwareTiles>>,
                 .rank = 20,
                 .layout = "rows"});

}  // namespace

#endif

}  // namespace hs
