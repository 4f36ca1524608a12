// The upper half is added to the lower half, whose lanes have neighbouring words. Thread 0 writes part[0] and reads it.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void reduction(const float* x, float* sum) {
  __shared__ hs::SharedArray<float, 256> part;
  const int t = static_cast<int>(threadIdx.x);
  part[t] = x[t] + x[t + 256] + x[t + 512] + x[t + 768];
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) part[t] += part[t + half];
  }
  if (t == 0) sum[0] = part[0];
}
