// What the kernels of conv2d and conv2d_pool_relu on the GPU share: sizes, and windows of 2 x 2 pixels. .cu files only.
#pragma once

#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/shared.cuh"

namespace hs::cuda {

// The sizes of a convolution as kernels of 32-bit indices use them. A larger stride than an image is as good as any.
struct ConvSizes {
  int H, W, C, OC, KH, KW, stride, padding, OH, OW;
  int PH = OH / 2, PW = OW / 2;  // rows and columns of windows
};
inline ConvSizes conv_sizes(const Conv2dSizes& s) {
  const auto cut = [](int64_t size) { return static_cast<int>(std::min(size, max_indices)); };
  return {cut(s.H),  cut(s.W),      cut(s.C),       cut(s.OC), cut(s.KH),
          cut(s.KW), cut(s.stride), cut(s.padding), cut(s.OH), cut(s.OW)};
}

// What relu(max_pool2d()) makes of a window: see `closed`.
struct Pooled {
  float value;
  int winner;
};
__device__ __forceinline__ Pooled pool_and_relu(const float (&pixels)[4]) {
  Pooled best = {pixels[0], 0};
#pragma unroll
  for (int place = 1; place < 4; ++place) {
    const bool better = !(pixels[place] <= best.value) && best.value == best.value;  // true for the first NaN
    best = better ? Pooled{pixels[place], place} : best;
  }
  return best.value <= 0 ? Pooled{0, closed} : best;  // not NaN, which is kept
}

// Of 8 values of 16 bits those whose `winner`, a byte, is `place`, zeros for the others. All are words: nvcc would take
// smaller elements apart. Four bytes are compared at once: 0x80 less the difference has its highest bit only where
// there is none. REQUIRES: winner and place are at most 0x7f
template <class Values, class Winners>
__device__ __forceinline__ Pack<uint32_t, 4> won_by(int place, const Values& values, const Winners& winner) {
  Pack<uint32_t, 4> won;
  uint32_t bytes[2];
  static_assert(sizeof values == sizeof won && sizeof winner == sizeof bytes);
  memcpy(&won, &values, sizeof won);
  memcpy(bytes, &winner, sizeof bytes);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t distance = bytes[i] ^ static_cast<uint32_t>(place) * 0x01010101u;
    const uint32_t equal = ((0x80808080u - distance) >> 7 & 0x01010101u) * 0xff;
    won.value[2 * i] &= __byte_perm(equal, 0, 0x1100);  // each byte twice
    won.value[2 * i + 1] &= __byte_perm(equal, 0, 0x3322);
  }
  return won;
}

}  // namespace hs::cuda
