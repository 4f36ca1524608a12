// wait<1>: the copy of this tile is done, that of the next one may be under way. Commits of nothing keep the number the
// same at the end. The last barrier: all have read this stage before the next turn copies into it.
#include <cuda_runtime.h>

#include "kernels/cuda/mma.cuh"

__global__ void sum_tiles(const float* x, float* y) {
  __shared__ hs::SharedArray<float, 2 * 256> stages;
  const int at = 4 * static_cast<int>(threadIdx.x);
  float4 sum = make_float4(0, 0, 0, 0);
  hs::cp_async_16(stages.data() + at, x + at);
  hs::cp_async_commit();
  for (int tile = 0; tile < 16; ++tile) {
    if (tile + 1 < 16) hs::cp_async_16(stages.data() + (tile + 1) % 2 * 256 + at, x + (tile + 1) * 256 + at);
    hs::cp_async_commit();
    hs::cp_async_wait<1>();
    __syncthreads();
    const float4 v = hs::load_vector<float4>(stages.data() + tile % 2 * 256 + 252 - at);
    sum = make_float4(sum.x + v.w, sum.y + v.z, sum.z + v.y, sum.w + v.x);
    __syncthreads();
  }
  hs::store_vector(y + at, sum);
}
