// One barrier before the places are read and one before they are written. Neither may be inside of the `if`: all
// threads of the block wait for each other there.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void scan(const float* x, float* y) {
  __shared__ hs::SharedArray<float, 256> part;
  const int t = static_cast<int>(threadIdx.x);
  part[t] = x[t];
  for (int d = 1; d < 256; d *= 2) {
    __syncthreads();
    const float before = t >= d ? static_cast<float>(part[t - d]) : 0.0f;
    __syncthreads();
    if (t >= d) part[t] += before;
  }
  y[t] = part[t];
}
