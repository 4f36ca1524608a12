#include "kernels/normalize_image/normalize_image.h"

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor normalize_image(const Tensor& images, const PixelScale& scale, DType type) {
  const Op op("normalize_image");
  check(images.dtype() == DType::u8, "normalize_image: images are {}, expected u8", name(images.dtype()));
  Tensor y = Tensor::empty(images.shape(), type, images.device());
  normalize_image_forward({images, scale, y});
  return y;
}

namespace {

void normalize_image_cpu(const NormalizeImageForward& call) {
  const auto normalize = [scale = call.scale](uint8_t pixel) { return normalized(pixel, scale); };
  for_float_type(call.y.dtype(), [&]<class T>() {
    map_elements(call.images.size(), normalize, call.y.mutable_data<T>(), call.images.data<uint8_t>());
  });
}

REGISTER_KERNEL(normalize_image_forward, cpu, "simple",
                {.run = normalize_image_cpu, .supported = [](const auto& call) { return is_float(call.y); }});

}  // namespace
}  // namespace hs
