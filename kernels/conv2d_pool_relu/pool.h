// Pooling of sums that a kernel has in memory, and back. Internal to kernels/conv2d/ and kernels/conv2d_pool_relu/.
#pragma once

#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/cpu/pack.h"

namespace hs {

// Where the four sums of a row's windows are, in floats: the next pixel to the right, and the one below.
struct WindowRow {
  int64_t windows, right, below;
};

// y and winner (windows, channels) of one row of windows. REQUIRES: channels is a multiple of 16
void pool_sums(const float* sums, const WindowRow& row, int64_t channels, float* y, uint8_t* winner);

// Elements between the rows and the pixels of an image in a larger one.
struct Strides {
  int64_t row, pixel;
};

// The gradient of the convolution, (OH, OW, OC), from that of the pooled values: dy where a pixel won, otherwise 0.
// REQUIRES: OH and OW are even
void unpool(const BFloat16* dy, const uint8_t* winner, int64_t OH, int64_t OW, int64_t OC, const Strides& to,
            BFloat16* dense);

// The same for one row of windows, and as pairs of the two pixels of a row of a window: `channels` cells of 32 for each
// window, those of the lower pixels `lower` cells behind those of the upper ones. dbias (channels) += what is open.
// dy and winner: (windows, OC), of which `channels` are read. REQUIRES: channels <= 32
void unpool_pairs(const BFloat16* dy, const uint8_t* winner, int64_t windows, int64_t OC, int64_t channels, Cell* pairs,
                  int64_t lower, float* dbias);

}  // namespace hs
