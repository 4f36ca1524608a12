// Transpose: y[column][row] = x[row][column], 64 x 64 floats. 2 x 2 blocks of 32 x 8 threads; a block has a tile of 32
// x 32, four elements to a thread. threadIdx.y is the number of the warp.
//
//        x: warp 0 reads a row              y: the same 32 values, one to a row
//        +--------------------+             +--------------------+
//        |0 1 2 ... 31        |             |0                   |
//        |                    |   ------>   |1                   |      32 lanes, 32 rows, 32 sectors
//        |                    |             |2                   |
//        +--------------------+             +--------------------+
//
// This kernel is right, and its stores touch a sector for each lane: 4 bytes used of 32 moved. Bring the tile into
// shared memory, one hs::SharedArray as in puzzle 02, so that both loads and stores go along rows. Then mind the banks:
// word w of shared memory is in bank w % 32, and lanes of a warp that want different words of one bank wait for each
// other.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void transpose(const float* x, float* y) {
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y * 32 + threadIdx.y);
  for (int i = 0; i < 32; i += 8) y[column * 64 + row + i] = x[(row + i) * 64 + column];
}
