#include "kernels/gelu/gelu.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct Gelu {
  __device__ float operator()(int64_t, float x) const { return x * GeluGate<float>(x).s; }
};

struct GeluGradient {
  __device__ float operator()(int64_t, float x, float dy) const { return GeluGate<float>(x).gradient(x, dy); }
};

void forward_cuda(const GeluForward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::elementwise(call.x.size(), Gelu{}, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

void backward_cuda(const GeluBackward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::elementwise(call.x.size(), GeluGradient{}, call.dx.mutable_data<T>(), call.x.data<T>(), call.dy.data<T>());
  });
}

REGISTER_KERNEL(gelu_forward, cuda, "simple", {.run = forward_cuda, .supported = cuda::takes_floats});
REGISTER_KERNEL(gelu_backward, cuda, "simple", {.run = backward_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
