#include "kernels/gelu/gelu.h"

#include "kernels/cpu/elements.h"

namespace hs {

Tensor gelu(const Tensor& x) {
  const Op op("gelu");
  Tensor y = x.empty_like();
  gelu_forward({x, y});
  return record("gelu", y, {x}, [x = x.saved()](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    gelu_backward({x, dy, dx});
    return {dx};
  });
}

namespace {

void forward_cpu(const GeluForward& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const auto f = [](Real x) { return x * GeluGate<Real>(x).s; };
    map_elements(call.x.size(), f, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

void backward_cpu(const GeluBackward& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const auto f = [](Real x, Real dy) { return GeluGate<Real>(x).gradient(x, dy); };
    map_elements(call.x.size(), f, call.dx.mutable_data<T>(), call.x.data<T>(), call.dy.data<T>());
  });
}

REGISTER_KERNEL(gelu_forward, cpu, "simple", {.run = forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(gelu_backward, cpu, "simple", {.run = backward_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
