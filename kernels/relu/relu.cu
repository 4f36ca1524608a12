#include "kernels/relu/relu.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct Relu {  // x <= 0 is false for NaN, which is kept
  __device__ float operator()(int64_t, float x) const { return x <= 0 ? 0.0f : x; }
};

struct ReluGradient {
  __device__ float operator()(int64_t, float y, float dy) const { return y <= 0 ? 0.0f : dy; }
};

void relu_forward_cuda(const ReluForward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::elementwise(call.x.size(), Relu{}, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

void relu_backward_cuda(const ReluBackward& call) {
  cuda::for_float_type(call.y.dtype(), [&]<class T>() {
    cuda::elementwise(call.y.size(), ReluGradient{}, call.dx.mutable_data<T>(), call.y.data<T>(), call.dy.data<T>());
  });
}

REGISTER_KERNEL(relu_forward, cuda, "simple", {.run = relu_forward_cuda, .supported = cuda::takes_floats});
REGISTER_KERNEL(relu_backward, cuda, "simple", {.run = relu_backward_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
