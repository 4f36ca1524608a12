// Rows of 33 floats: the elements of a column lie in 32 different banks, because 33 and 32 have no factor in common.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void transpose(const float* x, float* y) {
  __shared__ hs::SharedArray<float, 32 * 33> tile;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(blockIdx.x) * 32, row = static_cast<int>(blockIdx.y) * 32;
  for (int i = warp; i < 32; i += 8) tile[i * 33 + lane] = x[(row + i) * 64 + column + lane];
  __syncthreads();
  for (int i = warp; i < 32; i += 8) y[(column + i) * 64 + row + lane] = tile[lane * 33 + i];
}
