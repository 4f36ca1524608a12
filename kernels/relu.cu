#include "kernels/relu.h"

#include <cuda_runtime.h>

#include "kernels/cuda.cuh"

namespace hs {
namespace {

struct Relu {
  __device__ float operator()(int64_t, float x) const { return x <= 0 ? 0.0f : x; }  // false for NaN, which is kept
};

struct ReluGradient {
  __device__ float operator()(int64_t, float y, float dy) const { return y <= 0 ? 0.0f : dy; }
};

void relu_forward_cuda(const Tensor& x, Tensor& y) {
  cuda::for_float_type(x.dtype(),
                       [&]<class T>() { cuda::elementwise(x.size(), Relu{}, y.mutable_data<T>(), x.data<T>()); });
}

void relu_backward_cuda(const Tensor& y, const Tensor& dy, Tensor& dx) {
  cuda::for_float_type(y.dtype(), [&]<class T>() {
    cuda::elementwise(y.size(), ReluGradient{}, dx.mutable_data<T>(), y.data<T>(), dy.data<T>());
  });
}

REGISTER_KERNEL(relu_forward, cuda, "simple",
                {.run = relu_forward_cuda, .supported = [](const Tensor& x, Tensor&) { return cuda::is_float(x); }});
REGISTER_KERNEL(relu_backward, cuda, "simple",
                {.run = relu_backward_cuda,
                 .supported = [](const Tensor& y, const Tensor&, Tensor&) { return cuda::is_float(y); }});

}  // namespace
}  // namespace hs
