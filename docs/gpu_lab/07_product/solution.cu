// The first barrier: the tiles are complete. The second: all have read them, and they may be overwritten.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void product(const float* a, const float* b, float* c) {
  __shared__ hs::SharedArray<float, 16 * 16> a_tile;
  __shared__ hs::SharedArray<float, 16 * 16> b_tile;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * 16 + x, row = static_cast<int>(blockIdx.y) * 16 + y;
  float sum = 0;
  for (int first = 0; first < 64; first += 16) {
    a_tile[y * 16 + x] = a[row * 64 + first + x];
    b_tile[y * 16 + x] = b[(first + y) * 32 + column];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += a_tile[y * 16 + k] * b_tile[k * 16 + x];
    __syncthreads();
  }
  c[row * 32 + column] = sum;
}
