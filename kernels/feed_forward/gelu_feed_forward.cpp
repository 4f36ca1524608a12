#include "kernels/feed_forward/gelu_feed_forward.h"

#include "engine/check.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear/linear.h"

namespace hs {
namespace {

// Undefined if no kernel takes the call.
Tensor fused(const Tensor& x, const Tensor& weight1, const Tensor& weight2) {
  const Op op("gelu_feed_forward");
  const int64_t in = weight1.shape()[0], hidden = weight1.shape()[1], out = weight2.shape()[1];
  const Tensor input = autocast(x), w1 = autocast_parameter(weight1), w2 = autocast_parameter(weight2);
  const Tensor rows = input.detach().reshape({x.shape().rows(), in});
  if (!gelu_feed_forward_forward.is_taken({rows, w1, w2, no_tensor(), no_tensor()})) return {};
  Tensor sum = Tensor::empty({rows.shape()[0], hidden}, rows.dtype(), x.device());
  Tensor y = Tensor::empty({rows.shape()[0], out}, rows.dtype(), x.device());
  gelu_feed_forward_forward({rows, w1, w2, sum, y});
  return record("gelu_feed_forward", y.reshape(x.shape().with_back(out)), {input, weight1, weight2},
                [x = rows.saved(), sum = sum.saved(), w1 = w1.saved(), w2 = w2.saved(), shape = x.shape(),
                 needs_x = input.requires_grad(), to_weight1 = GradientTarget(weight1),
                 to_weight2 = GradientTarget(weight2)](const Tensor& gradient) -> Gradients {
                  const bool accumulate = claim_gradients({&to_weight1, &to_weight2});
                  const Tensor dy = gradient.detach().reshape({x.shape()[0], w2.shape()[1]});
                  Tensor dx = needs_x ? x.empty_like() : Tensor();
                  Tensor dweight1 = to_weight1.tensor(dy.device()), dweight2 = to_weight2.tensor(dy.device());
                  gelu_feed_forward_backward({x, w1, w2, sum, dy, accumulate, dx, dweight1, dweight2});
                  if (needs_x) dx = dx.reshape(shape);
                  return {dx, dweight1, dweight2};
                });
}

}  // namespace

Tensor gelu_feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& weight2) {
  const bool fits = x.shape().rank() >= 2 && weight1.shape().rank() == 2 && weight2.shape().rank() == 2 &&
                    x.shape().back() == weight1.shape()[0] && weight1.shape()[1] == weight2.shape()[0];
  const bool is_one_weight = weight1.grad_info() && weight1.grad_info() == weight2.grad_info();  // of two gradients
  const bool is_forced = gemm.is_forced() || gelu_forward.is_forced() || gelu_backward.is_forced();
  const bool fuses = fits && ambient().fuse && !is_forced && !is_one_weight;
  Tensor y = fuses ? fused(x, weight1, weight2) : Tensor();
  return y.defined() ? y : linear(gelu(linear(x, weight1, {})), weight2, {});  // linear() says what does not fit
}

}  // namespace hs
