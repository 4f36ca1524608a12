#include "kernels/global_average_pool2d/global_average_pool2d.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// A thread sums one channel of an image, pixel by pixel, in four sums because one would wait for each addition.
// Blocks are images, one after the other if there are more than blocks.
template <class T>
__global__ void global_average_pool2d_forward_kernel(cuda::Previous previous, int64_t images, int64_t pixels, int64_t C,
                                                     const T* x, T* y) {
  previous.wait();
  for (int64_t n = blockIdx.x; n < images; n += gridDim.x) {
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
      const T* image = x + n * pixels * C + c;
      float sum[4] = {};
      int64_t pixel = 0;
      for (; pixel + 4 <= pixels; pixel += 4) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] += cuda::to_f32(image[(pixel + j) * C]);
      }
      for (; pixel < pixels; ++pixel) sum[0] += cuda::to_f32(image[pixel * C]);
      const float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      y[n * C + c] = cuda::from_f32<T>(total / static_cast<float>(pixels));
    }
  }
}

template <class T>
__global__ void global_average_pool2d_backward_kernel(cuda::Previous previous, int64_t images, int64_t pixels,
                                                      int64_t C, const T* dy, T* dx) {
  previous.wait();
  for (int64_t n = blockIdx.x; n < images; n += gridDim.x) {
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
      const T share = cuda::from_f32<T>(cuda::to_f32(dy[n * C + c]) / static_cast<float>(pixels));
      T* image = dx + n * pixels * C + c;
      for (int64_t pixel = 0; pixel < pixels; ++pixel) image[pixel * C] = share;
    }
  }
}

unsigned blocks(int64_t images) { return static_cast<unsigned>(std::min<int64_t>(images, 4096)); }
// Whole warps, not many more than there are channels.
unsigned threads(int64_t C) { return static_cast<unsigned>(std::clamp<int64_t>((C + 31) / 32 * 32, 32, 256)); }

void forward_cuda(const GlobalAveragePool2dForward& call) {
  const Shape& x = call.x.shape();
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(global_average_pool2d_forward_kernel<T>, blocks(x[0]), threads(x[3]), 0, cuda::compute_stream(), x[0],
                 x[1] * x[2], x[3], call.x.data<T>(), call.y.mutable_data<T>());
  });
}

void backward_cuda(const GlobalAveragePool2dBackward& call) {
  const Shape& x = call.dx.shape();
  cuda::for_float_type(call.dy.dtype(), [&]<class T>() {
    cuda::launch(global_average_pool2d_backward_kernel<T>, blocks(x[0]), threads(x[3]), 0, cuda::compute_stream(), x[0],
                 x[1] * x[2], x[3], call.dy.data<T>(), call.dx.mutable_data<T>());
  });
}

REGISTER_KERNEL(global_average_pool2d_forward, cuda, "simple", {.run = forward_cuda, .supported = cuda::takes_floats});
REGISTER_KERNEL(global_average_pool2d_backward, cuda, "simple",
                {.run = backward_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
