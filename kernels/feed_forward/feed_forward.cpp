#include "kernels/feed_forward/feed_forward.h"

#include "engine/check.h"
#include "engine/slots.h"
#include "kernels/gemm/gemm.h"

namespace hs {

Tensor feed_forward(const Tensor& x, const Tensor& weight1, const Tensor& bias1, const Tensor& weight2,
                    const Tensor& bias2) {
  const Op op("feed_forward");
  check(x.shape().rank() == 2 && weight1.shape().rank() == 2 && weight2.shape().rank() == 2 &&
            x.shape()[1] == weight1.shape()[0] && weight1.shape()[1] == weight2.shape()[0] &&
            bias1.shape() == Shape{weight1.shape()[1]} && bias2.shape() == Shape{weight2.shape()[1]},
        "feed_forward: x is {}, weights {} and {}, biases {} and {}, expected (N, in), (in, hidden) and (hidden, out), "
        "(hidden) and (out)",
        x.shape(), weight1.shape(), weight2.shape(), bias1.shape(), bias2.shape());
  const bool tf32 = ambient().tf32;
  const Tensor input = autocast(x), w1 = autocast_parameter(weight1), w2 = autocast_parameter(weight2);
  const int64_t N = x.shape()[0], hidden = weight1.shape()[1];
  Tensor h = Tensor::empty({N, hidden}, input.dtype(), x.device());
  Tensor mask = gemm_mask(N, hidden, x.device());
  const char* layout = gemm({.a = input,
                             .b = w1,
                             .bias = autocast_parameter(bias1),
                             .options = {.epilogue = Epilogue::relu, .tf32 = tf32},
                             .c = h,
                             .mask = mask})
                           .layout;
  Tensor y = matmul(h, w2, autocast_parameter(bias2), {.tf32 = tf32});
  return record(
      "feed_forward", y, {input, weight1, bias1, weight2, bias2},
      [x = input.saved(), h = h.saved(), mask = mask.saved(), layout, w1 = w1.saved(), w2 = w2.saved(), tf32,
       needs_x = input.requires_grad(), to_weight1 = GradientTarget(weight1), to_bias1 = GradientTarget(bias1),
       to_weight2 = GradientTarget(weight2), to_bias2 = GradientTarget(bias2)](const Tensor& dy) -> Gradients {
        const GemmOptions for_weight{.transpose_a = true, .tf32 = tf32};
        Gradients gradients(5);
        gradients[3] = matmul_gradient(h, dy, for_weight, to_weight2);
        gradients[4] = bias_gradient(dy, to_bias2);
        if (!needs_x && !to_weight1.wanted() && !to_bias1.wanted()) return gradients;
        Tensor dh = h.empty_like();  // of the sum before the ReLU
        const bool adds = claim_gradients({&to_bias1});
        gradients[2] = to_bias1.tensor(h.device());
        // Straight to where it goes, if that may be overwritten and has the type in which the product sums.
        const bool is_summed_there = !adds && gradients[2].defined() && gradients[2].dtype() == h.dtype();
        Tensor dbias1 = is_summed_there ? gradients[2] : Tensor::empty({h.shape()[1]}, h.dtype(), h.device());
        gemm({.a = dy,
              .b = w2,
              .options = {.transpose_b = true, .epilogue = Epilogue::relu_backward, .tf32 = tf32},
              .c = dh,
              .saved_mask = mask,
              .relu_output = h,
              .layout = layout,
              .bias_gradient = dbias1});
        if (needs_x) gradients[0] = matmul(dh, w1, {}, {.transpose_b = true, .tf32 = tf32});
        gradients[1] = matmul_gradient(x, dh, for_weight, to_weight1);
        if (is_summed_there || !to_bias1.wanted()) return gradients;
        if (adds) {
          accumulate(cast(dbias1, to_bias1.dtype()), gradients[2]);
        } else {
          cast_forward({dbias1, gradients[2]});
        }
        return gradients;
      });
}

}  // namespace hs
