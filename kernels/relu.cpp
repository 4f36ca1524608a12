#include "kernels/relu.h"

#include "kernels/cpu.h"

namespace hs {

Tensor relu(const Tensor& x) {
  const Op op("relu");
  Tensor y = x.empty_like();
  relu_forward(x, y);
  // dL/dx = dL/dy where y > 0. Saving y, not x, lets the caller free x.
  return record("relu", y, {x}, [y = y.saved()](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    relu_backward(y, dy, dx);
    return {dx};
  });
}

namespace {

void relu_forward_cpu(const Tensor& x, Tensor& y) {
  const auto positive = [](auto value) { return value <= 0 ? 0 : value; };  // false for NaN, which is kept
  for_float_type(x.dtype(), [&]<class T>() { map_elements(x.size(), positive, y.mutable_data<T>(), x.data<T>()); });
}

void relu_backward_cpu(const Tensor& y, const Tensor& dy, Tensor& dx) {
  // The gradient is an argument and so read in both cases: the compiler may use vectors.
  const auto gate = [](auto out, auto gradient) { return out <= 0 ? 0 : gradient; };
  for_float_type(y.dtype(),
                 [&]<class T>() { map_elements(y.size(), gate, dx.mutable_data<T>(), y.data<T>(), dy.data<T>()); });
}

REGISTER_KERNEL(relu_forward, cpu, "simple",
                {.run = relu_forward_cpu, .supported = [](const Tensor& x, Tensor&) { return is_float(x); }});
REGISTER_KERNEL(relu_backward, cpu, "simple",
                {.run = relu_backward_cpu,
                 .supported = [](const Tensor& y, const Tensor&, Tensor&) { return is_float(y); }});

}  // namespace
}  // namespace hs
