#include "kernels/cast.h"

#include <cuda_runtime.h>

#include "kernels/cuda.cuh"

namespace hs {
namespace {

struct Identity {
  __device__ float operator()(int64_t, float x) const { return x; }
};

void cast_cuda(const Tensor& x, Tensor& y) {
  cuda::for_float_type(x.dtype(), [&]<class From>() {
    cuda::for_float_type(
        y.dtype(), [&]<class To>() { cuda::elementwise(x.size(), Identity{}, y.mutable_data<To>(), x.data<From>()); });
  });
}

REGISTER_KERNEL(cast_forward, cuda, "simple", {.run = cast_cuda, .supported = [](const Tensor& x, Tensor& y) {
                                                 return cuda::is_float(x) && cuda::is_float(y);
                                               }});

}  // namespace
}  // namespace hs
