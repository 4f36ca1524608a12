#include "kernels/elementwise/elementwise.h"

#include <algorithm>
#include <functional>

#include "engine/check.h"
#include "kernels/cast/cast.h"
#include "kernels/cpu/elements.h"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

void check_same(const char* op, const Tensor& a, const Tensor& b, bool types_fit) {
  check(a.shape() == b.shape() && types_fit, "{}: a is {} {} but b is {} {}", op, name(a.dtype()), a.shape(),
        name(b.dtype()), b.shape());
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  const Op op("add");
  check_same("add", a, b, is_same_or_f32(b, a));
  Tensor y = a.empty_like();
  add_forward({a, b, y});
  return record("add", y, {a, b}, [type = b.dtype()](const Tensor& dy) -> Gradients { return {dy, cast(dy, type)}; });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const Op op("sub");
  check_same("sub", a, b, a.dtype() == b.dtype());
  Tensor y = a.empty_like();
  sub_forward({a, b, y});
  return record("sub", y, {a, b}, [needs_b = b.requires_grad()](const Tensor& dy) -> Gradients {
    return {dy, needs_b ? scale(dy, -1) : Tensor()};
  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  const Op op("mul");
  check_same("mul", a, b, a.dtype() == b.dtype());
  Tensor y = a.empty_like();
  mul_forward({a, b, y});
  return record("mul", y, {a, b}, [a = a.saved(), b = b.saved()](const Tensor& dy) -> Gradients {
    Tensor da = dy.empty_like(), db = dy.empty_like();
    mul_forward({dy, b, da});
    mul_forward({dy, a, db});
    return {da, db};
  });
}

Tensor scale(const Tensor& x, double factor) {
  const Op op("scale");
  Tensor y = x.empty_like();
  scale_forward({x, factor, y});
  return record("scale", y, {x}, [factor](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    scale_forward({dy, factor, dx});
    return {dx};
  });
}

Tensor bias_add(const Tensor& x, const Tensor& bias) {
  const Op op("bias_add");
  check(x.shape().rank() >= 1 && bias.shape() == Shape{x.shape().back()}, "bias_add: x is {} but bias is {}", x.shape(),
        bias.shape());
  Tensor y = x.empty_like();
  bias_add_forward({x, cast(bias.detach(), x.dtype()), y});
  return record("bias_add", y, {x, bias}, [to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
    return {dy, bias_gradient(dy, to_bias)};
  });
}

namespace {

void add_cpu(const BinaryForward& call) {
  for_float_type(call.a, call.b, [&]<class T, class B>() {
    const auto add = [](auto left, auto right) { return left + right; };
    map_elements(call.a.size(), add, call.y.mutable_data<T>(), call.a.data<T>(), call.b.data<B>());
  });
}

template <class Function>  // of two numbers
void binary_cpu(const BinaryForward& call) {
  for_float_type(call.a.dtype(), [&]<class T>() {
    map_elements(call.a.size(), Function(), call.y.mutable_data<T>(), call.a.data<T>(), call.b.data<T>());
  });
}

void scale_cpu(const ScaleForward& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    const auto rounded = static_cast<Computing<T>>(call.factor);
    const auto multiply = [rounded](auto value) { return value * rounded; };
    map_elements(call.x.size(), multiply, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

void bias_add_cpu(const BiasAddForward& call) {
  const int64_t C = call.x.shape().back(), rows = call.x.shape().rows();
  const auto add = [](auto value, auto bias_value) { return value + bias_value; };
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    const T* b = call.bias.data<T>();
    T* out = call.y.mutable_data<T>();
    parallel_rows(rows, C, [=](int64_t i) { map_range(0, C, add, out + i * C, in + i * C, b); });
  });
}

REGISTER_KERNEL(add_forward, cpu, "simple", {.run = add_cpu, .supported = [](const BinaryForward& call) {
                                               return is_float_or_narrower(call.a, call.b);
                                             }});
REGISTER_KERNEL(sub_forward, cpu, "simple", {.run = binary_cpu<std::minus<>>, .supported = takes_floats});
REGISTER_KERNEL(mul_forward, cpu, "simple", {.run = binary_cpu<std::multiplies<>>, .supported = takes_floats});
REGISTER_KERNEL(scale_forward, cpu, "simple", {.run = scale_cpu, .supported = takes_floats});
REGISTER_KERNEL(bias_add_forward, cpu, "simple", {.run = bias_add_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
