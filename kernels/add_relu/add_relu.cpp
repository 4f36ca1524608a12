#include "kernels/add_relu/add_relu.h"

#include "engine/check.h"
#include "kernels/cpu/elements.h"
#include "kernels/relu/relu.h"

namespace hs {

Tensor add_relu(const Tensor& a, const Tensor& b) {
  if (!ambient().fuse || add_forward.is_forced() || relu_forward.is_forced()) return relu(add(a, b));
  const Op op("add_relu");
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), "add_relu: a is {} but b is {}", a, b);
  Tensor y = a.empty_like();
  add_relu_forward({a, b, y});
  return record("add_relu", y, {a, b}, [y = y.saved()](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    relu_backward({y, dy, dx});
    return {dx, dx};
  });
}

namespace {

void add_relu_cpu(const BinaryForward& call) {
  for_float_type(call.a.dtype(), [&]<class T>() {
    const auto f = [](Computing<T> left, Computing<T> right) {
      const Computing<T> sum = left + right;
      return is_closed(sum) ? 0 : sum;
    };
    map_elements(call.a.size(), f, call.y.mutable_data<T>(), call.a.data<T>(), call.b.data<T>());
  });
}

REGISTER_KERNEL(add_relu_forward, cpu, "simple", {.run = add_relu_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
