// Pooling of sums that a kernel has in memory, and back. Internal to kernels/conv2d_pool_relu/.
#pragma once

#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"

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

}  // namespace hs
