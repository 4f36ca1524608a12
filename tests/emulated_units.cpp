// The kernels for units that few CPUs have, on units emulated in plain C++: registered like the real ones, under the
// name of the real variant and "_emulated". Test programs link this file; halfstep-bench can load it as a library.
// They are tried after all others, so that only what forces them gets them. With HALFSTEP_EMULATED_UNITS=amx they come
// before all others of their slots instead, which then run as on a machine with AMX.
//   HALFSTEP_EMULATED_UNITS=amx LD_PRELOAD=build/release/tests/libemulated_units.so build/release/bench/halfstep-bench
//   train
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

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

// x, rounded to a half; to_float(to_half(x)) without a branch, for loops in vectors.
float rounded_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float size = std::fabs(x), normal = std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
  const float finite = size < 0x1p-14f ? std::copysign((size + 0.5f) - 0.5f, x) : normal;  // 0.5 has the last bit 2^-24
  return x != x ? x : size < 65520 ? finite : std::copysign(HUGE_VALF, x);
}

// The sums of AVX-512 FP16. A product of two halves is exact in f32, and rounded after the addition.
struct EmulatedHalves {
  template <int rows, int vectors>
  static void multiply(blocked::Left a, const Cell* b, int64_t steps, float* to, bool add) {
    constexpr int64_t width = vectors * 16;
    const auto half = [](Cell pair, int64_t k) { return to_float(Half{static_cast<uint16_t>(pair >> 16 * k)}); };
    std::vector<float> factors(static_cast<size_t>(2 * steps * width));  // of b: (steps, 2, width)
    for (int64_t i = 0; i < std::ssize(factors); ++i) {
      const int64_t s = i / (2 * width);
      factors[static_cast<size_t>(i)] = half(b[s * blocked::tile_columns + i % width], i / width % 2);
    }
    for (int64_t row = 0; row < rows; ++row, to += blocked::tile_columns) {
      float total[width] = {}, lanes[2][width] = {}, exact[width] = {};
      for (int64_t s = 0; s < steps; ++s) {
        for (int64_t k = 0; k < 2; ++k) {
          const float x = half(a.at(row, s).cells[0], k), *row_of_b = factors.data() + (2 * s + k) * width;
          for (int64_t c = 0; c < width; ++c) {
            lanes[k][c] = rounded_to_half(lanes[k][c] + x * row_of_b[c]);
            exact[c] += x * row_of_b[c];
          }
        }
        if (s + 1 < steps && (s + 1) % blocked::half_chain != 0) continue;
        for (int64_t c = 0; c < width; ++c) {
          total[c] += rounded_to_half(lanes[0][c] + lanes[1][c]);
          lanes[0][c] = lanes[1][c] = 0;
        }
      }
      for (int64_t c = 0; c < width; ++c) {
        to[c] = (add ? to[c] : 0) + (std::isfinite(total[c]) ? total[c] : exact[c]);
      }
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
