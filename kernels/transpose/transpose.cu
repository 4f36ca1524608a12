#include "kernels/transpose/transpose.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

constexpr int tile = 32, tile_row = tile + 1;  // of shared memory: a column of a tile is in 32 banks
constexpr int threads_down = cuda::block_threads / tile;
constexpr int64_t max_blocks = 1024;  // for the same columns, of which each takes several tiles then

// A block moves tiles of 32 x 32, of 32 columns of x: it reads and writes along rows, and turns the tile in between.
template <class T>
__global__ void transpose_kernel(cuda::Previous previous, int64_t R, int64_t C, const T* x, T* y) {
  previous.wait();
  __shared__ SharedArray<T, tile * tile_row> values;
  const int across = static_cast<int>(threadIdx.x) % tile, down = static_cast<int>(threadIdx.x) / tile;
  const int64_t c = int64_t{blockIdx.x} * tile;
  for (int64_t r = int64_t{blockIdx.y} * tile; r < R; r += int64_t{gridDim.y} * tile) {
    for (int i = down; i < tile; i += threads_down) {
      if (r + i < R && c + across < C) values[i * tile_row + across] = x[(r + i) * C + c + across];
    }
    __syncthreads();
    for (int i = down; i < tile; i += threads_down) {
      if (c + i < C && r + across < R) y[(c + i) * R + r + across] = values[across * tile_row + i];
    }
    __syncthreads();
  }
}

void transpose_cuda(const TransposeForward& call) {
  const int64_t R = call.x.shape()[0], C = call.x.shape()[1];
  const auto tiles = [](int64_t size) { return (size + tile - 1) / tile; };
  const dim3 grid(static_cast<unsigned>(tiles(C)), static_cast<unsigned>(std::min<int64_t>(tiles(R), max_blocks)));
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(transpose_kernel<T>, grid, cuda::block_threads, 0, cuda::compute_stream(), R, C, call.x.data<T>(),
                 call.y.mutable_data<T>());
  });
}

REGISTER_KERNEL(transpose_forward, cuda, "simple", {.run = transpose_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
