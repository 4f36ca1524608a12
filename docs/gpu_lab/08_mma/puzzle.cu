// Tensor core: c = a b with one instruction of one warp. a is 16 x 16 halves by rows, b 16 x 8 halves by columns
// (column n's 16 halves are next to each other), c 16 x 8 floats by rows. A lane holds, with group = lane / 4 and pair
// = 2 * (lane % 4):
//
//            columns of a                 rows of b              columns of c
//            pair, +1     pair + 8, +9    pair, +1:      b[0]    pair, +1
//   group     a[0]           a[2]         pair + 8, +9:  b[1]    d[0] d[1]      row group
//   group+8   a[1]           a[3]         in column group        d[2] d[3]      row group + 8
//
// a[i] and b[i] are two halves each, which lie next to each other in memory. Fill a and b: load_pair(p) loads the two
// halves at p. kernels/cuda/mma.cuh has the same picture in words.
#include <cuda_runtime.h>

#include "kernels/cuda/mma.cuh"

__device__ __forceinline__ uint32_t load_pair(const __half* at) { return hs::load_vector<uint32_t>(at); }

__global__ void one_mma(const __half* a_rows, const __half* b_columns, float* c) {
  const int lane = static_cast<int>(threadIdx.x), group = lane / 4, pair = 2 * (lane % 4);
  uint32_t a[4] = {}, b[2] = {};
  a[0] = load_pair(a_rows + 16 * group + pair);
  b[0] = load_pair(b_columns + 16 * group + pair);
  float d[4] = {};
  hs::mma_m16n8k16_f16(d, a, b, d);
  hs::store_vector(c + 8 * group + pair, make_float2(d[0], d[1]));
  hs::store_vector(c + 8 * (group + 8) + pair, make_float2(d[2], d[3]));
}
