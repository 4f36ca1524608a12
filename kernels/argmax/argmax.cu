#include "kernels/argmax/argmax.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// As many lanes of a warp share a row as it takes.
template <class T>
__global__ void argmax_kernel(cuda::Previous previous, int64_t R, int64_t C, int lanes, const T* x, int32_t* place) {
  previous.wait();
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int64_t first = 0; first < R; first += cuda::rows_at_once(lanes)) {  // every thread does every round
    const int64_t i = first + cuda::row_of_thread(lanes);
    Largest<float> largest;
    for (int64_t c = lane; i < R && c < C; c += lanes) largest.add(cuda::to_f32(x[i * C + c]), static_cast<int32_t>(c));
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const float value = __shfl_xor_sync(0xffffffffu, largest.value, distance);
      largest.add(value, __shfl_xor_sync(0xffffffffu, largest.place, distance));
    }
    if (lane == 0 && i < R) place[i] = largest.place;
  }
}

void argmax_cuda(const ArgmaxForward& call) {
  const int64_t R = call.place.size(), C = call.x.shape().back();
  const int lanes = cuda::lanes_for(C);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(argmax_kernel<T>, cuda::blocks_for(R * lanes), cuda::block_threads, 0, cuda::compute_stream(), R, C,
                 lanes, call.x.data<T>(), call.place.mutable_data<int32_t>());
  });
}

REGISTER_KERNEL(argmax_forward, cuda, "simple", {.run = argmax_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
