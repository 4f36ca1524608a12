// Raw pixels to network input: y = normalized(x). Done on the device, so only a quarter of the bytes are copied.
#pragma once

#include "engine/batch.h"
#include "engine/kernel.h"
#include "engine/observe.h"

namespace hs {

// images (N, H, W, C) u8 -> the same shape in f32, or in `type`: computed in f32 and rounded once, as a cast of the f32
// result would. Not differentiable.
Tensor normalize_image(const Tensor& images, const PixelScale& scale, DType type = DType::f32);

struct NormalizeImageForward {  // y = normalized(images, scale)
  const Tensor& images;
  const PixelScale& scale;
  Tensor& y;
  auto tensors() const { return tensor_list(images, y); }
};
constinit inline Kernel<NormalizeImageForward> normalize_image_forward{"normalize_image_forward"};

}  // namespace hs
