// Bias and ReLU in one pass: y = max(x + bias[column], 0), 64 rows of 128 floats. One block of 8 warps; a warp has
// every eighth row, and a lane four neighbouring columns of it, 16 bytes: one request of a warp is a whole row.
//
//   row 0    | lane 0: 0 1 2 3 | lane 1: 4 5 6 7 | ... | lane 31: 124 ... 127 |     warp 0
//   row 1    | lane 0: 0 1 2 3 | ...                                                warp 1
//   row 8    | the same columns, and so the same four numbers of the bias           warp 0
//
// This kernel is right. It writes the sum, reads it again, and moves 4 bytes for each lane. Make it one pass of
// hs::load_vector<float4>(pointer) and hs::store_vector(pointer, value), with the bias loaded once before the loop.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void bias_relu(const float* x, const float* bias, float* y) {
  const int column = static_cast<int>(threadIdx.x) % 128, first = static_cast<int>(threadIdx.x) / 128;
  for (int row = first; row < 64; row += 2) y[row * 128 + column] = x[row * 128 + column] + bias[column];
  for (int row = first; row < 64; row += 2) y[row * 128 + column] = fmaxf(y[row * 128 + column], 0.0f);
}
