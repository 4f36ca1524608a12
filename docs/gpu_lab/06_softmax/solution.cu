// The maximum goes through the same exchange as the sum. exp(x - largest) is at most 1, and the largest element
// gives 1.
#include <cuda_runtime.h>

__global__ void softmax(const float* x, float* y) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32;
  float values[4], sum = 0, largest = -INFINITY;
  for (int i = 0; i < 4; ++i) {
    const int column = 32 * i + lane;
    values[i] = column < 100 ? x[100 * row + column] : -INFINITY;
    largest = fmaxf(largest, values[i]);
  }
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  for (int i = 0; i < 4; ++i) sum += values[i] = expf(values[i] - largest);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  for (int i = 0; i < 4; ++i) {
    if (32 * i + lane < 100) y[100 * row + 32 * i + lane] = values[i] / sum;
  }
}
