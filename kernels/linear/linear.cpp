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
        x.shape().to_string(), weight.shape().to_string());
  check(x.shape()[1] == weight.shape()[0], "linear: weight is {} but x has {} columns", weight.shape().to_string(),
        x.shape()[1]);
  const GemmOptions forward{.tf32 = ambient().tf32}, for_x{.transpose_b = true, .tf32 = ambient().tf32},
      for_weight{.transpose_a = true, .tf32 = ambient().tf32};
  const Tensor input = autocast(x), w = autocast_parameter(weight);
  Tensor y = matmul(input, w, autocast_parameter(bias), forward);
  std::vector<Tensor> inputs = {input, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(
      "linear", y, inputs,
      [x = input.saved(), w = w.saved(), for_x, for_weight, has_bias = bias.defined(), needs_x = input.requires_grad(),
       to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
        Gradients gradients(has_bias ? 3 : 2);
        if (needs_x) gradients[0] = matmul(dy, w, {}, for_x);
        gradients[1] = matmul_gradient(x, dy, for_weight, to_weight);
        if (has_bias) gradients[2] = bias_gradient(dy, to_bias);
        return gradients;
      });
}

}  // namespace hs
