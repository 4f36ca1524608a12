#include "kernels/normalize_image/normalize_image.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct Normalize {
  PixelScale scale;
  __device__ float operator()(int64_t, float pixel) const { return normalized(pixel, scale); }
};

void normalize_image_cuda(const NormalizeImageForward& call) {
  cuda::for_float_type(call.y.dtype(), [&]<class T>() {
    cuda::elementwise(call.images.size(), Normalize{call.scale}, call.y.mutable_data<T>(), call.images.data<uint8_t>());
  });
}

REGISTER_KERNEL(normalize_image_forward, cuda, "simple",
                {.run = normalize_image_cuda, .supported = [](const auto& call) { return cuda::is_float(call.y); }});

}  // namespace
}  // namespace hs
