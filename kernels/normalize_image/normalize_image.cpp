#include "kernels/normalize_image/normalize_image.h"

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor normalize_image(const Tensor& images, const PixelScale& scale) {
  const Op op("normalize_image");
  check(images.dtype() == DType::u8, "normalize_image: images are {}, expected u8", name(images.dtype()));
  Tensor y = Tensor::empty(images.shape(), DType::f32, images.device());
  normalize_image_forward({images, scale, y});
  return y;
}

namespace {

void normalize_image_cpu(const NormalizeImageForward& call) {
  const uint8_t* in = call.images.data<uint8_t>();
  float* out = call.y.mutable_data<float>();
  parallel_ranges(call.images.size(), elementwise_grain, [=, scale = call.scale](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = normalized(in[i], scale);
  });
}

REGISTER_KERNEL(normalize_image_forward, cpu, "simple", {.run = normalize_image_cpu});

}  // namespace
}  // namespace hs
