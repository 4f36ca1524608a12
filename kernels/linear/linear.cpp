// linear is three matrix products and a column sum, unless one kernel is to compute all gradients.
#include "kernels/linear/linear.h"

#include "engine/check.h"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

// x as a matrix of rows of its last dimension, without history; shares storage.
Tensor as_rows(const Tensor& x) {
  return x.shape().rank() == 2 ? x.detach() : x.detach().reshape({x.shape().rows(), x.shape().back()});
}

// Three calls, each of which has a line of its own in a profile.
void backward_by_products(const LinearBackward& call) {
  const bool turned = call.order == WeightOrder::out_in;
  const Tensor &left = turned ? call.dy : call.x, &right = turned ? call.x : call.dy;
  const GemmOptions for_x{.transpose_b = !turned, .tf32 = call.tf32},
      for_weight{.transpose_a = true, .beta = call.accumulate ? 1.0f : 0.0f, .tf32 = call.tf32};
  if (call.dx.defined()) matmul_into(call.dy, call.weight, for_x, call.dx);
  if (call.dweight.defined()) matmul_into(left, right, for_weight, call.dweight);
  if (call.dbias.defined()) column_sum({call.dy, call.accumulate, call.dbias});
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightOrder order) {
  const Op op("linear");
  check(x.shape().rank() >= 2 && weight.shape().rank() == 2,
        "linear: x is {} and weight {}, expected (..., in) of at least two dimensions, and a matrix", x.shape(),
        weight.shape());
  const bool turned = order == WeightOrder::out_in, tf32 = ambient().tf32;
  const int64_t in = weight.shape()[turned ? 1 : 0], out = weight.shape()[turned ? 0 : 1];
  check(x.shape().back() == in, "linear: weight is {}{} but x has {} columns", weight.shape(),
        turned ? " (out, in)" : "", x.shape().back());
  const Tensor input = autocast(x), rows = as_rows(input), w = autocast_parameter(weight);
  Tensor y = matmul(rows, w, autocast_parameter(bias), {.transpose_b = turned, .tf32 = tf32});
  if (x.shape().rank() > 2) y = y.reshape(x.shape().with_back(out));
  return record(
      "linear", y, {input, weight, bias},
      [x = rows.saved(), w = w.saved(), shape = x.shape(), order, tf32, needs_x = input.requires_grad(),
       to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& gradient) -> Gradients {
        const bool accumulate = claim_gradients({&to_weight, &to_bias});
        const Tensor dy = as_rows(gradient);
        Tensor dx = needs_x ? x.empty_like() : Tensor();
        Tensor dweight = to_weight.tensor(dy.device()), dbias = to_bias.tensor(dy.device());
        const LinearBackward call{x, w, dy, order, tf32, accumulate, dx, dweight, dbias};
        if (x.device() == Device::cuda && linear_backward.is_taken(call)) {
          linear_backward(call);  // one kernel for all of them
        } else {
          backward_by_products(call);
        }
        if (needs_x && shape.rank() > 2) dx = dx.reshape(shape);
        return {dx, dweight, dbias};
      });
}

namespace {

// For tests, which compare a GPU's kernel with it: linear() calls the products itself.
REGISTER_KERNEL(linear_backward, cpu, "simple", {.run = backward_by_products});

}  // namespace
}  // namespace hs
