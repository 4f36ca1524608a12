#include "kernels/unary/unary.h"

#include "kernels/cpu/elements.h"
#include "kernels/unary/functions.h"

namespace hs {
namespace {

enum class Keeps : bool { x, y };

Tensor unary(const char* name, const Tensor& x, Kernel<UnaryForward>& forward, Kernel<UnaryBackward>& backward,
             Keeps keeps) {
  const Op op(name);
  Tensor y = x.empty_like();
  forward({x, y});
  const Tensor& needed = keeps == Keeps::x ? x : y;
  return record(name, y, {x}, [kept = needed.saved(), &backward](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    backward({kept, dy, dx});
    return {dx};
  });
}

}  // namespace

Tensor exp(const Tensor& x) { return unary("exp", x, exp_forward, exp_backward, Keeps::y); }
Tensor log(const Tensor& x) { return unary("log", x, log_forward, log_backward, Keeps::x); }
Tensor tanh(const Tensor& x) { return unary("tanh", x, tanh_forward, tanh_backward, Keeps::y); }
Tensor sigmoid(const Tensor& x) { return unary("sigmoid", x, sigmoid_forward, sigmoid_backward, Keeps::y); }

namespace {

template <class Function>
void unary_cpu(const UnaryForward& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    const auto f = [](auto x) { return Function::value(x); };
    map_elements(call.x.size(), f, call.y.mutable_data<T>(), call.x.data<T>());
  });
}

template <class Function>
void unary_backward_cpu(const UnaryBackward& call) {
  for_float_type(call.dy.dtype(), [&]<class T>() {
    const auto f = [](auto kept, auto dy) { return Function::gradient(kept, dy); };
    map_elements(call.dy.size(), f, call.dx.mutable_data<T>(), call.kept.data<T>(), call.dy.data<T>());
  });
}

using namespace functions;
REGISTER_KERNEL(exp_forward, cpu, "simple", {.run = unary_cpu<Exp>, .supported = takes_floats});
REGISTER_KERNEL(log_forward, cpu, "simple", {.run = unary_cpu<Log>, .supported = takes_floats});
REGISTER_KERNEL(tanh_forward, cpu, "simple", {.run = unary_cpu<Tanh>, .supported = takes_floats});
REGISTER_KERNEL(sigmoid_forward, cpu, "simple", {.run = unary_cpu<Sigmoid>, .supported = takes_floats});
REGISTER_KERNEL(exp_backward, cpu, "simple", {.run = unary_backward_cpu<Exp>, .supported = takes_floats});
REGISTER_KERNEL(log_backward, cpu, "simple", {.run = unary_backward_cpu<Log>, .supported = takes_floats});
REGISTER_KERNEL(tanh_backward, cpu, "simple", {.run = unary_backward_cpu<Tanh>, .supported = takes_floats});
REGISTER_KERNEL(sigmoid_backward, cpu, "simple", {.run = unary_backward_cpu<Sigmoid>, .supported = takes_floats});

}  // namespace
}  // namespace hs
