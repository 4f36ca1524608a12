#include "kernels/elementwise.h"

#include <cuda_runtime.h>

#include "kernels/cuda.cuh"

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
void binary_cuda(const Tensor& a, const Tensor& b, Tensor& y) {
  cuda::for_float_type(
      a.dtype(), [&]<class T>() { cuda::elementwise(a.size(), F{}, y.mutable_data<T>(), a.data<T>(), b.data<T>()); });
}

void scale_cuda(const Tensor& x, double factor, Tensor& y) {
  const Scale scale{static_cast<float>(factor)};
  cuda::for_float_type(x.dtype(),
                       [&]<class T>() { cuda::elementwise(x.size(), scale, y.mutable_data<T>(), x.data<T>()); });
}

bool binary_supported(const Tensor& a, const Tensor&, Tensor&) { return cuda::is_float(a); }

REGISTER_KERNEL(add_forward, cuda, "simple", {.run = binary_cuda<Add>, .supported = binary_supported});
REGISTER_KERNEL(mul_forward, cuda, "simple", {.run = binary_cuda<Multiply>, .supported = binary_supported});
REGISTER_KERNEL(scale_forward, cuda, "simple",
                {.run = scale_cuda, .supported = [](const Tensor& x, double, Tensor&) { return cuda::is_float(x); }});

}  // namespace
}  // namespace hs
