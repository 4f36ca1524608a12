// a[1] is 8 rows below a[0], a[2] is 8 columns to its right, a[3] both; b[1] is 8 rows below b[0], in the same column.
#include <cuda_runtime.h>

#include "kernels/cuda/mma.cuh"

__device__ __forceinline__ uint32_t load_pair(const __half* at) { return hs::load_vector<uint32_t>(at); }

__global__ void one_mma(const __half* a_rows, const __half* b_columns, float* c) {
  const int lane = static_cast<int>(threadIdx.x), group = lane / 4, pair = 2 * (lane % 4);
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = load_pair(a_rows + 16 * (group + 8 * (i % 2)) + pair + 8 * (i / 2));
  for (int i = 0; i < 2; ++i) b[i] = load_pair(b_columns + 16 * group + pair + 8 * i);
  float d[4] = {};
  hs::mma_m16n8k16_f16(d, a, b, d);
  hs::store_vector(c + 8 * group + pair, make_float2(d[0], d[1]));
  hs::store_vector(c + 8 * (group + 8) + pair, make_float2(d[2], d[3]));
}
