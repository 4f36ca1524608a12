#include "kernels/add_relu/add_relu.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct AddRelu {
  __device__ float operator()(int64_t, float a, float b) const {
    const float sum = a + b;
    return sum <= 0 ? 0.0f : sum;  // false for NaN, which is kept
  }
};

void add_relu_cuda(const BinaryForward& call) {
  cuda::for_float_type(call.a.dtype(), [&]<class T>() {
    cuda::elementwise(call.a.size(), AddRelu{}, call.y.mutable_data<T>(), call.a.data<T>(), call.b.data<T>());
  });
}

REGISTER_KERNEL(add_relu_forward, cuda, "simple", {.run = add_relu_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
