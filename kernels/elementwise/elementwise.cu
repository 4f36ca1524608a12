#include "kernels/elementwise/elementwise.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct Add {
  __device__ float operator()(int64_t, float a, float b) const { return a + b; }
};

struct Multiply {
  __device__ float operator()(int64_t, float a, float b) const { return a * b; }
};

struct Scale {
  float factor;
  __device__ float operator()(int64_t, float x) const { return x * factor; }
};

template <class F>
void binary_cuda(const BinaryForward& call) {
  cuda::for_float_type(call.a.dtype(), [&]<class T>() {
    cuda::elementwise(call.a.size(), F{}, call.y.mutable_data<T>(), call.a.data<T>(), call.b.data<T>());
  });
}

void scale_cuda(const ScaleForward& call) {
  const Scale scale{static_cast<float>(call.factor)};
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::elementwise(call.x.size(), scale, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

bool binary_supported(const BinaryForward& call) { return cuda::is_float(call.a); }

REGISTER_KERNEL(add_forward, cuda, "simple", {.run = binary_cuda<Add>, .supported = binary_supported});
REGISTER_KERNEL(mul_forward, cuda, "simple", {.run = binary_cuda<Multiply>, .supported = binary_supported});
REGISTER_KERNEL(scale_forward, cuda, "simple",
                {.run = scale_cuda, .supported = [](const ScaleForward& call) { return cuda::is_float(call.x); }});

}  // namespace
}  // namespace hs
