// linear is three matrix products and a column sum; where one kernel computes all gradients, backward is that one.
#include "kernels/linear/linear.h"

#include "engine/check.h"
#include "kernels/bias_add/bias_add.h"
#include "kernels/cast/cast.h"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

// Empty if no kernel computes all of them faster than one after the other, as the CPU's does not.
Gradients gradients_at_once(const Tensor& x, const Tensor& w, const Tensor& dy, bool needs_x,
                            const GradientTarget& to_weight, const GradientTarget& to_bias) {
  if (x.device() == Device::cpu || !ambient().fuse || gemm.is_forced() || column_sum.is_forced()) return {};
  const GradientMode mode = gradient_mode({&to_weight, &to_bias});
  Tensor dx = needs_x ? x.empty_like() : Tensor();
  Tensor dweight = to_weight.tensor(mode, dy.device()), dbias = to_bias.tensor(mode, dy.device());
  const LinearBackward call{x, w, dy, mode == GradientMode::add, dx, dweight, dbias};
  if (!linear_backward.variant_for(call)) return {};
  linear_backward(call);
  if (mode != GradientMode::fresh) dweight = dbias = {};
  return {dx, dweight, dbias};
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Op op("linear");
  check(x.shape().rank() == 2 && weight.shape().rank() == 2, "linear: x is {} and weight {}, expected two matrices",
        x.shape(), weight.shape());
  check(x.shape()[1] == weight.shape()[0], "linear: weight is {} but x has {} columns", weight.shape(), x.shape()[1]);
  const GemmOptions forward{.tf32 = ambient().tf32}, for_x{.transpose_b = true, .tf32 = ambient().tf32},
      for_weight{.transpose_a = true, .tf32 = ambient().tf32};
  const Tensor input = autocast(x), w = autocast_parameter(weight);
  Tensor y = matmul(input, w, autocast_parameter(bias), forward);
  return record("linear", y, {input, weight, bias},
                [x = input.saved(), w = w.saved(), for_x, for_weight, needs_x = input.requires_grad(),
                 to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
                  Gradients gradients = gradients_at_once(x, w, dy, needs_x, to_weight, to_bias);
                  if (!gradients.empty()) return gradients;
                  gradients.resize(3);
                  if (needs_x) gradients[0] = matmul(dy, w, {}, for_x);
                  gradients[1] = matmul_gradient(x, dy, for_weight, to_weight);
                  gradients[2] = bias_gradient(dy, to_bias);
                  return gradients;
                });
}

namespace {

void backward_by_products(const LinearBackward& call) {
  const float beta = call.accumulate ? 1.0f : 0.0f;
  if (call.dx.defined()) matmul_into(call.dy, call.weight, {.transpose_b = true}, call.dx);
  if (call.dweight.defined()) matmul_into(call.x, call.dy, {.transpose_a = true, .beta = beta}, call.dweight);
  if (call.dbias.defined()) column_sum({call.dy, call.accumulate, call.dbias});
}

REGISTER_KERNEL(linear_backward, cpu, "simple", {.run = backward_by_products});

}  // namespace
}  // namespace hs
