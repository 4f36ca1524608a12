// Scan: y[i] = x[0] + ... + x[i], 256 floats, one block of 256 threads. After the step with distance d, place i holds
// the sum of the last 2d elements up to i:
//
//   part        x0    x1      x2         x3            x4
//   d = 1       x0    x0+x1   x1+x2      x2+x3         x3+x4
//   d = 2       x0    x0+x1   x0+x1+x2   x0+..+x3      x1+..+x4
//   d = 4       x0    x0+x1   x0+x1+x2   x0+..+x3      x0+..+x4
//
// A thread reads its neighbour's place and writes its own, which another neighbour reads. The emulator runs the threads
// in three orders and sees who was not waited for. Two barriers for each step are enough; where?
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void scan(const float* x, float* y) {
  __shared__ hs::SharedArray<float, 256> part;
  const int t = static_cast<int>(threadIdx.x);
  part[t] = x[t];
  for (int d = 1; d < 256; d *= 2) {
    if (t >= d) part[t] += part[t - d];
  }
  y[t] = part[t];
}
