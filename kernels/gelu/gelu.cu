#include "kernels/gelu/gelu.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// As in kernels/gelu/gelu.cpp.
struct Gate {
  float s, rest, slope;
  __device__ explicit Gate(float x) {
    constexpr auto linear = static_cast<float>(gelu_linear), per_square = static_cast<float>(gelu_cubic);
    const float cubic = fminf(x * x, gelu_most_square) * per_square;
    const float e = expf(-fabsf(x) * (linear + cubic)), larger = 1 / (1 + e), smaller = e * larger;
    s = x > 0 ? larger : smaller;
    rest = x > 0 ? smaller : larger;
    slope = linear + 3 * cubic;
  }
};

struct Gelu {
  __device__ float operator()(int64_t, float x) const { return x * Gate(x).s; }
};

struct GeluGradient {
  __device__ float operator()(int64_t, float x, float dy) const {
    const Gate gate(x);
    return dy * (gate.s + x * (gate.s * gate.rest) * gate.slope);
  }
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

REGISTER_KERNEL(gelu_forward, cuda, "simple",
                {.run = forward_cuda, .supported = [](const GeluForward& call) { return cuda::is_float(call.x); }});
REGISTER_KERNEL(gelu_backward, cuda, "simple",
                {.run = backward_cuda, .supported = [](const GeluBackward& call) { return cuda::is_float(call.x); }});

}  // namespace
}  // namespace hs
