// What is added and clipped is in registers in between: x is read once, y written once, the bias read once by each
// warp.
#include <cuda_runtime.h>

#include "kernels/cuda/shared.cuh"

__global__ void bias_relu(const float* x, const float* bias, float* y) {
  const int column = 4 * (static_cast<int>(threadIdx.x) % 32), first = static_cast<int>(threadIdx.x) / 32;
  const float4 b = hs::load_vector<float4>(bias + column);
  for (int row = first; row < 64; row += 8) {
    const float4 v = hs::load_vector<float4>(x + row * 128 + column);
    hs::store_vector(y + row * 128 + column, make_float4(fmaxf(v.x + b.x, 0.0f), fmaxf(v.y + b.y, 0.0f),
                                                         fmaxf(v.z + b.z, 0.0f), fmaxf(v.w + b.w, 0.0f)));
  }
}
