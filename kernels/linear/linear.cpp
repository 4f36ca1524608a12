// linear has no kernel of its own: it is three matrix products and a column sum.
#include "kernels/linear/linear.h"

#include "engine/check.h"
#include "kernels/bias_add/bias_add.h"
#include "kernels/cast/cast.h"
#include "kernels/gemm/gemm.h"

namespace hs {

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
                  Gradients gradients(3);
                  if (needs_x) gradients[0] = matmul(dy, w, {}, for_x);
                  gradients[1] = matmul_gradient(x, dy, for_weight, to_weight);
                  gradients[2] = bias_gradient(dy, to_bias);
                  return gradients;
                });
}

}  // namespace hs
