// Maximum over window x window patches, `stride` apart, per channel; rows and columns that do not fill a window are
// left out. A NaN in the window is the maximum; of equal values the first (row by row) gets the gradient.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x (N, H, W, C) -> (N, (H - window)/stride + 1, (W - window)/stride + 1, C). Throws Error (usage) for a window
// that is larger than the image, or not 1 to 16: a place in it is one byte.
Tensor max_pool2d(const Tensor& x, int64_t window, int64_t stride);

// choice[i]: position of the maximum in its window, row * window + column (u8, the shape of y). It is all that backward
// needs: one byte for each output, and not the input itself.
struct MaxPool2dForward {  // x, window, stride and y as in max_pool2d()
  const Tensor& x;
  int64_t window, stride;
  Tensor& y;
  Tensor& choice;
  auto tensors() const { return tensor_list(x, y, choice); }
};
constinit inline Kernel<MaxPool2dForward> max_pool2d_forward{"max_pool2d_forward"};

struct MaxPool2dBackward {  // dx: at each choice, the sum of dy; window and stride as in forward
  const Tensor& dy;
  const Tensor& choice;
  int64_t window, stride;
  Tensor& dx;
  auto tensors() const { return tensor_list(dy, choice, dx); }
};
constinit inline Kernel<MaxPool2dBackward> max_pool2d_backward{"max_pool2d_backward"};

}  // namespace hs
