// Product: c = a b, a of 32 x 64, b of 64 x 32. 2 x 2 blocks of 16 x 16 threads, one element of c for each thread.
//
//                     b  +----+----+
//                        |    |####|  tile 0, 16 x 16      A block goes along its rows of a and down its columns of b
//                        |    |####|                       in steps of 16: all threads load one element of either tile,
//                        +----+----+                       wait, and multiply what 16 of them have loaded.
//        a               |    |    |  tile 1 ...
//        +----+----+--   +----+----+                       Each element of a tile is loaded once and used 16 times.
//        |####|    |..   |    |####|  c
//        +----+----+--   +----+----+
//
// This kernel is right, and loads each element 16 times. Use two tiles in shared memory, each an hs::SharedArray, and
// two barriers for each pair.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void product(const float* a, const float* b, float* c) {
  const int column = static_cast<int>(blockIdx.x * 16 + threadIdx.x),
            row = static_cast<int>(blockIdx.y * 16 + threadIdx.y);
  float sum = 0;
  for (int k = 0; k < 64; ++k) sum += a[row * 64 + k] * b[k * 32 + column];
  c[row * 32 + column] = sum;
}
