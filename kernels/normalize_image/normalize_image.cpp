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
  for_float_type(call.y.dtype(), [&]<class T>() {
    const uint8_t* pixels = call.images.data<uint8_t>();
    T* y = call.y.mutable_data<T>();
    T results[256];  // of each pixel there is, which takes two divisions
    for (int i = 0; i < 256; ++i) results[i] = from_computing<T>(normalized(static_cast<float>(i), call.scale));
    parallel_ranges(call.images.size(), elementwise_grain, [=, &results](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = results[pixels[i]];
    });
  });
}

REGISTER_KERNEL(normalize_image_forward, cpu, "simple",
                {.run = normalize_image_cpu, .supported = [](const auto& call) { return is_float(call.y); }});

}  // namespace
}  // namespace hs
