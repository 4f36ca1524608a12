#include "kernels/gelu/gelu.h"

#include <algorithm>
#include <cmath>

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

// s, 1 - s and d(2 u)/dx, as the header names them.
template <class Real>
struct Gate {
  Real s, rest, slope;
  explicit Gate(Real x) {
    const auto linear = static_cast<Real>(gelu_linear);
    const Real cubic = static_cast<Real>(gelu_cubic) * std::min<Real>(x * x, gelu_most_square);
    const Real e = std::exp(-std::fabs(x) * (linear + cubic)), larger = 1 / (1 + e), smaller = e * larger;
    s = x > 0 ? larger : smaller;
    rest = x > 0 ? smaller : larger;
    slope = linear + 3 * cubic;
  }
};

void forward_cpu(const GeluForward& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const auto f = [](Real x) { return x * Gate<Real>(x).s; };
    map_elements(call.x.size(), f, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

void backward_cpu(const GeluBackward& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const auto f = [](Real x, Real dy) {
      const Gate<Real> gate(x);
      return dy * (gate.s + x * (gate.s * gate.rest) * gate.slope);
    };
    map_elements(call.x.size(), f, call.dx.mutable_data<T>(), call.x.data<T>(), call.dy.data<T>());
  });
}

REGISTER_KERNEL(gelu_forward, cpu, "simple", {.run = forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(gelu_backward, cpu, "simple", {.run = backward_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
