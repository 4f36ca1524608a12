// linear is three matrix products and a column sum; where one kernel computes all gradients, backward is that one.
#include "kernels/linear/linear.h"

#include "engine/check.h"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

// x as a matrix of rows of its last dimension, without history; shares storage.
Tensor as_rows(const Tensor& x) {
  if (x.shape().rank() == 2) return x.detach();
  return x.detach().reshape({x.shape().rows(), x.shape().back()});
}

// Empty if no kernel is to compute all of them at once.
Gradients gradients_at_once(const Tensor& x, const Tensor& w, const Tensor& dy, bool needs_x,
                            const GradientTarget& to_weight, const GradientTarget& to_bias) {
  if (!ambient().fuse || gemm.is_forced() || column_sum.is_forced()) return {};
  // x stands for dx: is_taken() asks only for types and shapes. claim_gradients() comes after it, because it counts the
  // gradients as written.
  const auto buffer = [&](const GradientTarget& of) { return of.tensor(GradientMode::replace, dy.device()); };
  Tensor dx = needs_x ? x : Tensor(), dweight = buffer(to_weight), dbias = buffer(to_bias);
  if (!linear_backward.is_taken({x, w, dy, false, dx, dweight, dbias})) return {};
  const GradientMode mode = claim_gradients({&to_weight, &to_bias});
  if (needs_x) dx = x.empty_like();
  dweight = to_weight.tensor(mode, dy.device()), dbias = to_bias.tensor(mode, dy.device());
  linear_backward({x, w, dy, mode == GradientMode::add, dx, dweight, dbias});
  if (mode != GradientMode::fresh) dweight = dbias = {};
  return {dx, dweight, dbias};
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightOrder order) {
  const Op op("linear");
  const bool by_rows = order == WeightOrder::in_out;
  check(x.shape().rank() >= 2 && weight.shape().rank() == 2,
        "linear: x is {} and weight {}, expected (..., in) of at least two dimensions, and a matrix", x.shape(),
        weight.shape());
  const int64_t in = weight.shape()[by_rows ? 0 : 1], out = weight.shape()[by_rows ? 1 : 0];
  check(x.shape().back() == in, "linear: weight is {}{} but x has {} columns", weight.shape(),
        by_rows ? "" : " (out, in)", x.shape().back());
  const GemmOptions forward{.transpose_b = !by_rows, .tf32 = ambient().tf32},
      for_x{.transpose_b = by_rows, .tf32 = ambient().tf32}, for_weight{.transpose_a = true, .tf32 = ambient().tf32};
  const Tensor input = autocast(x), rows = as_rows(input), w = autocast_parameter(weight);
  Tensor y = matmul(rows, w, autocast_parameter(bias), forward);
  if (x.shape().rank() > 2) y = y.reshape(x.shape().with_back(out));
  return record(
      "linear", y, {input, weight, bias},
      [x = rows.saved(), w = w.saved(), shape = x.shape(), by_rows, for_x, for_weight, needs_x = input.requires_grad(),
       to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& gradient) -> Gradients {
        const Tensor dy = as_rows(gradient);
        Gradients gradients;
        if (by_rows && x.device() != Device::cpu) gradients = gradients_at_once(x, w, dy, needs_x, to_weight, to_bias);
        if (gradients.empty()) {
          gradients.resize(3);
          if (needs_x) gradients[0] = matmul(dy, w, {}, for_x);
          gradients[1] = matmul_gradient(by_rows ? x : dy, by_rows ? dy : x, for_weight, to_weight);
          gradients[2] = bias_gradient(dy, to_bias);
        }
        if (needs_x && shape.rank() > 2) gradients[0] = gradients[0].reshape(shape);
        return gradients;
      });
}

namespace {

// For tests, which compare a GPU's kernel with it: on the CPU, linear() calls these products itself.
void backward_by_products(const LinearBackward& call) {
  const float beta = call.accumulate ? 1.0f : 0.0f;
  if (call.dx.defined()) matmul_into(call.dy, call.weight, {.transpose_b = true}, call.dx);
  if (call.dweight.defined()) matmul_into(call.x, call.dy, {.transpose_a = true, .beta = beta}, call.dweight);
  if (call.dbias.defined()) column_sum({call.dy, call.accumulate, call.dbias});
}

REGISTER_KERNEL(linear_backward, cpu, "simple", {.run = backward_by_products});

}  // namespace
}  // namespace hs
