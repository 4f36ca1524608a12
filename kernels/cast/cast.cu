#include "kernels/cast/cast.h"

#include <cuda_runtime.h>

#include "engine/slots.h"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct Identity {
  __device__ float operator()(int64_t, float x) const { return x; }
};

void cast_cuda(const CastForward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class From>() {
    cuda::for_float_type(call.y.dtype(), [&]<class To>() {
      cuda::elementwise(call.x.size(), Identity{}, call.y.mutable_data<To>(), call.x.data<From>());
    });
  });
}

REGISTER_KERNEL(cast_forward, cuda, "simple", {.run = cast_cuda, .supported = [](const CastForward& call) {
                                                 return cuda::is_float(call.x) && cuda::is_float(call.y);
                                               }});

}  // namespace
}  // namespace hs
