// Reduction: sum[0] = the sum of 1024 floats, with one block of 256 threads. Each thread adds four, then a tree adds
// the 256 parts in 8 steps:
//
//   step = 1     part[0]+=part[1]   part[2]+=part[3]   part[4]+=part[5] ...      thread t has part[2t]
//   step = 2     part[0]+=part[2]                      part[4]+=part[6] ...      thread t has part[4t]
//   step = 4     part[0]+=part[4]                                       ...      thread t has part[8t]
//
// This kernel is right. But the words of step s lie 2s apart, so that lanes meet in their banks: 105 conflicts. Choose
// other pairs, for a tree of the same depth: in each step, lane t takes word t.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void reduction(const float* x, float* sum) {
  __shared__ hs::SharedArray<float, 256> part;
  const int t = static_cast<int>(threadIdx.x);
  part[t] = x[t] + x[t + 256] + x[t + 512] + x[t + 768];
  for (int step = 1; step < 256; step *= 2) {
    __syncthreads();
    if (2 * step * t < 256) part[2 * step * t] += part[2 * step * t + step];
  }
  if (t == 0) sum[0] = part[0];
}
