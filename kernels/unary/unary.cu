#include "kernels/unary/unary.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/unary/functions.h"

namespace hs {
namespace {

template <class Function>
struct UnaryValue {
  __device__ float operator()(int64_t, float x) const { return Function::value(x); }
};

template <class Function>
struct UnaryGradient {
  __device__ float operator()(int64_t, float kept, float dy) const { return Function::gradient(kept, dy); }
};

template <class Function>
void unary_cuda(const UnaryForward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::elementwise(call.x.size(), UnaryValue<Function>{}, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

template <class Function>
void unary_backward_cuda(const UnaryBackward& call) {
  cuda::for_float_type(call.dy.dtype(), [&]<class T>() {
    cuda::elementwise(call.dy.size(), UnaryGradient<Function>{}, call.dx.mutable_data<T>(), call.kept.data<T>(),
                      call.dy.data<T>());
  });
}

using namespace functions;
REGISTER_KERNEL(exp_forward, cuda, "simple", {.run = unary_cuda<Exp>, .supported = cuda::takes_floats});
REGISTER_KERNEL(log_forward, cuda, "simple", {.run = unary_cuda<Log>, .supported = cuda::takes_floats});
REGISTER_KERNEL(tanh_forward, cuda, "simple", {.run = unary_cuda<Tanh>, .supported = cuda::takes_floats});
REGISTER_KERNEL(sigmoid_forward, cuda, "simple", {.run = unary_cuda<Sigmoid>, .supported = cuda::takes_floats});
REGISTER_KERNEL(exp_backward, cuda, "simple", {.run = unary_backward_cuda<Exp>, .supported = cuda::takes_floats});
REGISTER_KERNEL(log_backward, cuda, "simple", {.run = unary_backward_cuda<Log>, .supported = cuda::takes_floats});
REGISTER_KERNEL(tanh_backward, cuda, "simple", {.run = unary_backward_cuda<Tanh>, .supported = cuda::takes_floats});
REGISTER_KERNEL(sigmoid_backward, cuda, "simple",
                {.run = unary_backward_cuda<Sigmoid>, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
