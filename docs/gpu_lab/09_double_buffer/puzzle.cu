// Double buffering: y[i] = the sum over 16 tiles of x of tile[255 - i]; a tile has 256 floats. One block of 64 threads,
// and 4 floats, 16 bytes, for each thread. cp.async copies from global to shared memory while the threads go on:
//
//   copies      tile 0 -> stage 0 | tile 1 -> stage 1 | tile 2 -> stage 0 | tile 3 -> stage 1
//   sums                          | of stage 0        | of stage 1        | of stage 0
//                        wait, barrier       barrier, wait, barrier
//
// cp_async_commit() closes a group of copies; cp_async_wait<n>() waits until at most n groups of this thread are under
// way. A wait is for the thread's own copies; for those of other threads there is the barrier. Add the waits and
// barriers. The next copy starts before the wait here, so a wait for all would be right, too, and nothing would
// overlap: the check cannot see that, you can. kernels/gemm/mma.cu starts it after wait and barrier: then the wait
// leaves one group less under way, and one barrier a tile is enough.
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
    const float4 v = hs::load_vector<float4>(stages.data() + tile % 2 * 256 + 252 - at);
    sum = make_float4(sum.x + v.w, sum.y + v.z, sum.z + v.y, sum.w + v.x);
  }
  hs::store_vector(y + at, sum);
}
