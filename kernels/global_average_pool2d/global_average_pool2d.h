// The mean over all pixels of an image, per channel.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

// x (N, H, W, C) -> (N, C). Throws if an image has no pixels.
Tensor global_average_pool2d(const Tensor& x);

struct GlobalAveragePool2dForward {  // y[n, c] = mean of x[n, :, :, c]
  const Tensor& x;
  Tensor& y;
  auto tensors() const { return tensor_list(x, y); }
};
constinit inline Kernel<GlobalAveragePool2dForward> global_average_pool2d_forward{"global_average_pool2d_forward"};

struct GlobalAveragePool2dBackward {  // dx[n, h, w, c] = dy[n, c] / (H W)
  const Tensor& dy;
  Tensor& dx;
  auto tensors() const { return tensor_list(dy, dx); }
};
constinit inline Kernel<GlobalAveragePool2dBackward> global_average_pool2d_backward{"global_average_pool2d_backward"};

}  // namespace hs
