// max_pool2d for f32 on vectors of channels. Forward keeps the maximum and its position in two registers; backward,
// where windows do not overlap, writes every input once (its gradient or zero) instead of clearing the image and
// scattering.
#include <algorithm>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/simd.h"
#include "kernels/max_pool2d/max_pool2d.h"

namespace hs {
namespace {

using simd::Vec;
constexpr int64_t lanes = simd::width;
using IntVec = int32_t __attribute__((vector_size(lanes * sizeof(int32_t))));
using ByteVec = uint8_t __attribute__((vector_size(lanes)));

void forward_simd(const MaxPool2dForward& call) {
  const int64_t window = call.window, stride = call.stride;
  const int64_t N = call.x.shape()[0], H = call.x.shape()[1], W = call.x.shape()[2], C = call.x.shape()[3];
  const int64_t OH = call.y.shape()[1], OW = call.y.shape()[2];
  const float* in = call.x.data<float>();
  float* out = call.y.mutable_data<float>();
  uint8_t* chosen = call.choice.mutable_data<uint8_t>();
  parallel(N, [=](int64_t n, int) {
    for (int64_t oh = 0; oh < OH; ++oh) {
      for (int64_t ow = 0; ow < OW; ++ow) {
        const float* corner = in + ((n * H + oh * stride) * W + ow * stride) * C;
        const int64_t o = ((n * OH + oh) * OW + ow) * C;
        for (int64_t c = 0; c < C; c += lanes) {
          Vec best = simd::load(corner + c);
          IntVec where = {};
          for (int64_t i = 0, row = 0; row < window; ++row) {
            for (int64_t column = 0; column < window; ++column, ++i) {
              const Vec value = simd::load(corner + (row * W + column) * C + c);
              const IntVec better = ~(value <= best) & (best == best);  // true for the first NaN
              best = better ? value : best;
              where = better ? IntVec{} + static_cast<int32_t>(i) : where;
            }
          }
          simd::store(out + o + c, best);
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
  const float* dout = call.dy.data<float>();
  const uint8_t* chosen = call.choice.data<uint8_t>();
  float* din = call.dx.mutable_data<float>();
  parallel(N, [=](int64_t n, int) {
    float* image = din + n * H * W * C;
    for (int64_t oh = 0; oh < OH; ++oh) {
      float* rows = image + oh * window * W * C;
      for (int64_t ow = 0; ow < OW; ++ow) {
        const int64_t o = ((n * OH + oh) * OW + ow) * C;
        for (int64_t c = 0; c < C; c += lanes) {
          const Vec gradient = simd::load(dout + o + c);
          ByteVec bytes;
          std::memcpy(&bytes, chosen + o + c, sizeof bytes);
          const IntVec where = __builtin_convertvector(bytes, IntVec);
          for (int64_t i = 0, row = 0; row < window; ++row) {
            for (int64_t column = 0; column < window; ++column, ++i) {
              const Vec mine = where == static_cast<int32_t>(i) ? gradient : Vec{};
              simd::store(rows + (row * W + ow * window + column) * C + c, mine);
            }
          }
        }
      }
      for (int64_t row = 0; row < window; ++row) {  // columns that fill no window
        std::fill(rows + (row * W + OW * window) * C, rows + (row + 1) * W * C, 0.0f);
      }
    }
    std::fill(image + OH * window * W * C, image + H * W * C, 0.0f);  // rows that fill no window
  });
}

REGISTER_KERNEL(max_pool2d_forward, cpu, "simd",
                {.run = forward_simd,
                 .supported =
                     [](const MaxPool2dForward& call) { return is_f32(call.x) && call.x.shape()[3] % lanes == 0; },
                 .rank = 10});
REGISTER_KERNEL(max_pool2d_backward, cpu, "simd",
                {.run = backward_simd,
                 .supported =
                     [](const MaxPool2dBackward& call) {
                       return is_f32(call.dy) && call.dy.shape()[3] % lanes == 0 && call.window == call.stride;
                     },
                 .rank = 10});

}  // namespace
}  // namespace hs
