// linear has no kernel of its own: it is three matrix products and a column sum.
#include "kernels/linear.h"

#include "engine/check.h"
#include "kernels/bias_add.h"
#include "kernels/gemm.h"

namespace hs {

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Op op("linear");
  check(x.shape().rank() == 2 && weight.shape().rank() == 2, "linear: x is {} and weight {}, expected two matrices",
        x.shape().to_string(), weight.shape().to_string());
  check(x.shape()[1] == weight.shape()[0], "linear: weight is {} but x has {} columns", weight.shape().to_string(),
        x.shape()[1]);
  Tensor y = matmul(x, weight, bias);
  std::vector<Tensor> inputs = {x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record("linear", y, inputs,
                [x = x.saved(), weight = weight.saved(), has_bias = bias.defined(), needs_x = x.requires_grad(),
                 weight_info = weight.grad_info(), bias_info = bias.grad_info()](const Tensor& dy) -> Gradients {
                  Gradients gradients(has_bias ? 3 : 2);
                  if (needs_x) gradients[0] = matmul(dy, weight, {}, {.transpose_b = true});
                  if (weight_info)
                    gradients[1] = matmul_gradient(x, dy, {.transpose_a = true}, leaf_gradient(weight_info));
                  if (bias_info) gradients[2] = bias_gradient(dy, leaf_gradient(bias_info));
                  return gradients;
                });
}

}  // namespace hs
