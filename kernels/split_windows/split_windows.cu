#include "kernels/split_windows/split_windows.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// A block splits one window, of T + 1 symbols of `width` bytes.
__global__ void split_windows_kernel_cuda(cuda::Previous previous, int64_t T, int64_t width, const uint8_t* windows,
                                          int32_t* tokens, int32_t* labels) {
  previous.wait();
  const int64_t n = blockIdx.x;
  const uint8_t* window = windows + n * (T + 1) * width;
  const auto symbol = [&](int64_t t) { return width == 1 ? window[t] : window[2 * t] | window[2 * t + 1] << 8; };
  for (int64_t t = threadIdx.x; t < T; t += blockDim.x) {
    tokens[n * T + t] = symbol(t);
    labels[n * T + t] = symbol(t + 1);
  }
}

void split_windows_cuda(const SplitWindows& call) {
  const int64_t N = call.tokens.shape()[0], T = call.tokens.shape()[1];
  const auto threads = static_cast<unsigned>(std::clamp<int64_t>((T + 31) / 32 * 32, 32, cuda::block_threads));
  if (N == 0) return;
  cuda::launch(split_windows_kernel_cuda, static_cast<unsigned>(N), threads, 0, cuda::compute_stream(), T,
               call.windows.shape()[3], call.windows.data<uint8_t>(), call.tokens.mutable_data<int32_t>(),
               call.labels.mutable_data<int32_t>());
}

REGISTER_KERNEL(split_windows_kernel, cuda, "simple", {.run = split_windows_cuda});

}  // namespace
}  // namespace hs
