// max_pool2d for f16 and bf16 on vectors of channels, as kernels/max_pool2d/simd.cpp does it for f32. A maximum is a
// selection: nothing is widened. Seen as integers, the patterns of positive numbers rise with their values; kept in
// order as `rank`, all patterns do.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/simd.h"
#include "kernels/max_pool2d/max_pool2d.h"

namespace hs {
namespace {

constexpr int64_t lanes = 2 * simd::width;
using Vec16 = int16_t __attribute__((vector_size(lanes * sizeof(int16_t))));
using ByteVec = uint8_t __attribute__((vector_size(lanes)));

template <class V>
V load_as(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Integers in the order of the numbers: -0 and 0 are equal, NaN is above everything.
Vec16 rank(Vec16 bits, int16_t infinity) {
  const Vec16 magnitude = bits & int16_t{0x7fff};
  const Vec16 ordered = bits < 0 ? -magnitude : magnitude;
  return magnitude > infinity ? Vec16{} + int16_t{0x7fff} : ordered;
}

void forward_simd(const MaxPool2dForward& call) {
  const int64_t window = call.window, stride = call.stride;
  const int64_t N = call.x.shape()[0], H = call.x.shape()[1], W = call.x.shape()[2], C = call.x.shape()[3];
  const int64_t OH = call.y.shape()[1], OW = call.y.shape()[2];
  const int16_t infinity = call.x.dtype() == DType::f16 ? 0x7c00 : 0x7f80;
  const auto* in = static_cast<const uint16_t*>(call.x.raw_data());
  auto* out = static_cast<uint16_t*>(call.y.mutable_raw_data());
  uint8_t* chosen = call.choice.mutable_data<uint8_t>();
  parallel(N, [=](int64_t n, int) {
    for (int64_t oh = 0; oh < OH; ++oh) {
      for (int64_t ow = 0; ow < OW; ++ow) {
        const uint16_t* corner = in + ((n * H + oh * stride) * W + ow * stride) * C;
        const int64_t o = ((n * OH + oh) * OW + ow) * C;
        for (int64_t c = 0; c < C; c += lanes) {
          Vec16 best = load_as<Vec16>(corner + c), best_rank = rank(best, infinity), where = {};
          for (int64_t i = 0, row = 0; row < window; ++row) {
            for (int64_t column = 0; column < window; ++column, ++i) {
              const Vec16 value = load_as<Vec16>(corner + (row * W + column) * C + c);
              const Vec16 value_rank = rank(value, infinity);
              const Vec16 better = value_rank > best_rank;  // false for what is equal: the first one stays
              best = better ? value : best;
              best_rank = better ? value_rank : best_rank;
              where = better ? Vec16{} + static_cast<int16_t>(i) : where;
            }
          }
          std::memcpy(out + o + c, &best, sizeof best);
          const ByteVec bytes = __builtin_convertvector(where, ByteVec);
          std::memcpy(chosen + o + c, &bytes, sizeof bytes);
        }
      }
    }
  });
}

void backward_simd(const MaxPool2dBackward& call) {
  const int64_t window = call.window;
  const int64_t N = call.dx.shape()[0], H = call.dx.shape()[1], W = call.dx.shape()[2], C = call.dx.shape()[3];
  const int64_t OH = call.dy.shape()[1], OW = call.dy.shape()[2];
  const auto* dout = static_cast<const uint16_t*>(call.dy.raw_data());
  const uint8_t* chosen = call.choice.data<uint8_t>();
  auto* din = static_cast<uint16_t*>(call.dx.mutable_raw_data());
  parallel(N, [=](int64_t n, int) {
    uint16_t* image = din + n * H * W * C;
    for (int64_t oh = 0; oh < OH; ++oh) {
      uint16_t* rows = image + oh * window * W * C;
      for (int64_t ow = 0; ow < OW; ++ow) {
        const int64_t o = ((n * OH + oh) * OW + ow) * C;
        for (int64_t c = 0; c < C; c += lanes) {
          const Vec16 gradient = load_as<Vec16>(dout + o + c);
          const Vec16 where = __builtin_convertvector(load_as<ByteVec>(chosen + o + c), Vec16);
          for (int64_t i = 0, row = 0; row < window; ++row) {
            for (int64_t column = 0; column < window; ++column, ++i) {
              const Vec16 mine = where == static_cast<int16_t>(i) ? gradient : Vec16{};
              std::memcpy(rows + (row * W + ow * window + column) * C + c, &mine, sizeof mine);
            }
          }
        }
      }
      for (int64_t row = 0; row < window; ++row) {  // columns that fill no window
        std::fill(rows + (row * W + OW * window) * C, rows + (row + 1) * W * C, uint16_t{0});
      }
    }
    std::fill(image + OH * window * W * C, image + H * W * C, uint16_t{0});  // rows that fill no window
  });
}

REGISTER_KERNEL(max_pool2d_forward, cpu, "simd16",
                {.run = forward_simd,
                 .supported =
                     [](const MaxPool2dForward& call) { return is_16_bit(call.x) && call.x.shape()[3] % lanes == 0; },
                 .rank = 10});
REGISTER_KERNEL(max_pool2d_backward, cpu, "simd16",
                {.run = backward_simd,
                 .supported =
                     [](const MaxPool2dBackward& call) {
                       return is_16_bit(call.dy) && call.dy.shape()[3] % lanes == 0 && call.window == call.stride;
                     },
                 .rank = 10});

}  // namespace
}  // namespace hs
