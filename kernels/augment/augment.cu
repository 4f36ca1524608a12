#include "kernels/augment/augment.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// One block for each image; its threads share the pixels. Every thread draws the image's warp: all threads do it at the
// same time, which costs no more than waiting for one.
__global__ void augment_image_kernel(cuda::Previous previous, int64_t N, int32_t H, int32_t W, int32_t C,
                                     AugmentRange range, const int32_t* samples, const int32_t* epoch,
                                     const uint8_t* images, uint8_t* y) {
  previous.wait();
  const int64_t image_bytes = int64_t{H} * W * C;
  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    const ImageWarp warp = draw_warp(range, samples[n], *epoch, H, W);
    const uint8_t* image = images + n * image_bytes;
    uint8_t* out = y + n * image_bytes;
    for (int32_t p = static_cast<int32_t>(threadIdx.x); p < H * W; p += static_cast<int32_t>(blockDim.x)) {
      warped_pixel(warp, image, H, W, C, p / W, p % W, out + int64_t{p} * C);
    }
  }
}

void augment_image_cuda(const AugmentImageForward& call) {
  constexpr int64_t max_blocks = 4096;
  const Shape& shape = call.images.shape();
  const auto H = static_cast<int32_t>(shape[1]), W = static_cast<int32_t>(shape[2]), C = static_cast<int32_t>(shape[3]);
  cuda::launch(augment_image_kernel, static_cast<unsigned>(std::min(shape[0], max_blocks)), cuda::block_threads, 0,
               cuda::compute_stream(), shape[0], H, W, C, call.range, call.samples.data<int32_t>(),
               call.epoch.data<int32_t>(), call.images.data<uint8_t>(), call.y.mutable_data<uint8_t>());
}

REGISTER_KERNEL(augment_image_forward, cuda, "simple", {.run = augment_image_cuda});

}  // namespace
}  // namespace hs
