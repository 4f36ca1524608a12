#include "kernels/feed_forward.h"

#include "engine/check.h"
#include "kernels/bias_add.h"
#include "kernels/gemm.h"

namespace hs {

Tensor feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1, const Tensor& weight2,
                    const Tensor& bias2) {
  const Op op("feed_forward");
  check(x.shape().rank() == 2 && weight1.shape().rank() == 2 && weight2.shape().rank() == 2 &&
            x.shape()[1] == weight1.shape()[0] && weight1.shape()[1] == weight2.shape()[0] &&
            bias1.shape() == Shape{weight1.shape()[1]} && bias2.shape() == Shape{weight2.shape()[1]},
        "feed_forward: x is {}, weights {} and {}, biases {} and {}, expected (N, in), (in, hidden) and (hidden, out), "
        "(hidden) and (out)",
        x.shape().to_string(), weight1.shape().to_string(), weight2.shape().to_string(), bias1.shape().to_string(),
        bias2.shape().to_string());
  const int64_t N = x.shape()[0], hidden = weight1.shape()[1];
  Tensor h = Tensor::empty({N, hidden}, x.dtype(), x.device());
  Tensor mask = gemm_mask(N, hidden, x.device());
  Tensor none;
  gemm(x, weight1, bias1, {.epilogue = Epilogue::relu}, mask, none, h);
  Tensor y = matmul(h, weight2, bias2);
  return record(
      "feed_forward", y, {x, weight1, bias1, weight2, bias2},
      [x = x.saved(), h = h.saved(), mask = mask.saved(), weight1 = weight1.saved(), weight2 = weight2.saved(),
       needs_x = x.requires_grad(), info1 = weight1.grad_info(), bias_info1 = bias1.grad_info(),
       info2 = weight2.grad_info(), bias_info2 = bias2.grad_info()](const Tensor& dy) -> Gradients {
        Gradients gradients(5);
        if (info2) gradients[3] = matmul_gradient(h, dy, {.transpose_a = true}, leaf_gradient(info2));
        if (bias_info2) gradients[4] = bias_gradient(dy, leaf_gradient(bias_info2));
        if (!needs_x && !info1 && !bias_info1) return gradients;
        Tensor dh = h.empty_like();  // of the sum before the ReLU
        Tensor dbias1 = Tensor::empty({h.shape()[1]}, h.dtype(), h.device());
        Tensor bits = mask;
        gemm(dy, weight2, {}, {.transpose_b = true, .epilogue = Epilogue::relu_backward}, bits, dbias1, dh);
        if (needs_x) gradients[0] = matmul(dh, weight1, {}, {.transpose_b = true});
        if (info1) gradients[1] = matmul_gradient(x, dh, {.transpose_a = true}, leaf_gradient(info1));
        if (bias_info1) gradients[2] = dbias1;
        return gradients;
      });
}

}  // namespace hs
