// Stencil: y[i] = x[i - 1] + x[i] + x[i + 1], with 0 for what lies outside of x. 4 blocks of 256 threads, n = 1024.
//
//   x           ... 254  255 | 256  257 ... 510  511 | 512 ...
//   tile of           [0]      [1]  [2] ... [255][256] [257]        block 1
//   block 1          halo      thread 0  ...  thread 255  halo
//
// Three loads of each element would do, at three times the traffic. A block loads its 256 elements and one more on
// either side once, into shared memory. The line for the 256 is there. Add the two others, and what must come before
// the sum.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void stencil(int n, const float* x, float* y) {
  __shared__ hs::SharedArray<float, 258> tile;
  const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x) * 256 + t;
  if (i < n) tile[t + 1] = x[i];
  y[i] = tile[t] + tile[t + 1] + tile[t + 2];
}
