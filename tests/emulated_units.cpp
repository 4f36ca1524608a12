// The kernels for units that few CPUs have, on units emulated in plain C++: registered like the real ones, under the
// name of the real variant and "_emulated". Test programs link this file; halfstep-bench can load it as a library.
// They are tried after all others, so that only what forces them gets them. With HALFSTEP_EMULATED_UNITS=amx they come
// before all others of their slots instead, which then run as on a machine with AMX.
//   HALFSTEP_EMULATED_UNITS=amx LD_PRELOAD=build/release/tests/libemulated_units.so build/release/bench/halfstep-bench
//   train
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/causal_attention/amx.h"
#include "kernels/conv2d/amx_backward.h"
#include "kernels/conv2d_pool_relu/amx.h"
#include "kernels/gemm/amx.h"
#include "kernels/gemm/avx512_fp16.h"
#include "tests/support/emulated_tiles.h"

namespace hs {
namespace {

using test::EmulatedTiles;

int emulated_rank() {
  const char* value = std::getenv("HALFSTEP_EMULATED_UNITS");
  const std::string units = value ? value : "";
  if (units.empty()) return -1;
  if (units != "amx") {
    std::fprintf(stderr, "HALFSTEP_EMULATED_UNITS=%s: expected amx\n", value);
    std::_Exit(2);
  }
  return 1000;
}

// The sums of AVX-512 FP16. A product of two halves is exact in f32, and rounded after the addition.
struct EmulatedHalves {
  template <int rows, int vectors>
  static void multiply(blocked::Left a, const Cell* b, int64_t steps, float* to, bool add) {
    const auto half = [](Cell pair, int which) { return to_float(Half{static_cast<uint16_t>(pair >> 16 * which)}); };
    for (int64_t i = 0; i < rows * vectors * 16; ++i) {
      const int64_t row = i / (vectors * 16), column = i % (vectors * 16);
      float total = 0, lanes[2] = {}, exact = 0;
      for (int64_t s = 0; s < steps; ++s) {
        for (int k : {0, 1}) {
          const float product = half(a.at(row, s).cells[0], k) * half(b[s * blocked::tile_columns + column], k);
          lanes[k] = to_float(to_half(lanes[k] + product));
          exact += product;
        }
        if (s + 1 < steps && (s + 1) % blocked::half_chain != 0) continue;
        total += to_float(to_half(lanes[0] + lanes[1]));
        lanes[0] = lanes[1] = 0;
      }
      float& sum = to[row * blocked::tile_columns + column];
      sum = (add ? sum : 0) + (std::isfinite(total) ? total : exact);
    }
  }
};

REGISTER_KERNEL(gemm, cpu, "avx512_fp16_emulated",
                {.run = blocked::gemm_blocked<blocked::HalfProduct<EmulatedHalves>>,
                 .supported =
                     [](const Gemm& call) { return call.a.dtype() == DType::f16 && is_same_or_f32(call.a, call.c); },
                 .workspace = blocked::workspace<blocked::HalfProduct<EmulatedHalves>>,
                 .rank = -2,
                 .layout = "rows",
                 .error_growth = blocked::half_growth});
REGISTER_KERNEL(gemm, cpu, "amx_emulated",
                {.run = blocked::gemm_blocked<blocked::TileProduct<EmulatedTiles>>,
                 .supported =
                     [](const Gemm& call) { return call.a.dtype() == DType::bf16 && is_same_or_f32(call.a, call.c); },
                 .workspace = blocked::workspace<blocked::TileProduct<EmulatedTiles>>,
                 .rank = emulated_rank(),
                 .layout = "rows"});
REGISTER_KERNEL(causal_attention_forward, cpu, "amx_emulated",
                {.run = amx::attention_forward<EmulatedTiles>,
                 .supported = amx::takes_attention<CausalAttentionForward>,
                 .workspace = amx::attention_workspace<CausalAttentionForward>,
                 .rank = emulated_rank(),
                 .error_growth = amx::attention_growth});
REGISTER_KERNEL(causal_attention_backward, cpu, "amx_emulated",
                {.run = amx::attention_backward<EmulatedTiles>,
                 .supported = amx::takes_attention<CausalAttentionBackward>,
                 .workspace = amx::attention_workspace<CausalAttentionBackward>,
                 .rank = emulated_rank(),
                 .error_growth = amx::attention_growth});
REGISTER_KERNEL(conv2d_forward, cpu, "amx_emulated",
                {.run = amx::forward<EmulatedTiles>,
                 .supported = amx::takes,
                 .workspace = amx::forward_workspace,
                 .rank = emulated_rank()});
REGISTER_KERNEL(conv2d_backward, cpu, "amx_emulated",
                {.run = amx::backward<EmulatedTiles>,
                 .supported = amx::takes,
                 .workspace = amx::backward_workspace,
                 .rank = emulated_rank()});
REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "amx_emulated",
                {.run = amx::pooled_forward<EmulatedTiles>,
                 .supported = amx::takes,
                 .workspace = amx::pooled_workspace,
                 .rank = emulated_rank()});
REGISTER_KERNEL(conv2d_pool_relu_backward, cpu, "amx_emulated",
                {.run = amx::pooled_backward<EmulatedTiles>,
                 .supported = amx::takes,
                 .workspace = amx::pooled_backward_workspace,
                 .rank = emulated_rank()});

}  // namespace
}  // namespace hs
