// conv2d_relu: variants that know ReLU clamp what they store, and backward reads in y what it stopped.
#include "kernels/relu/relu.h"

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

// Whether the variants that are used without relu take it over; others would be slower than two passes. x stands for y
// and dy, because only types count.
bool fuses_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dSizes& s) {
  if (!ambient().fuse || relu_forward.is_forced() || relu_backward.is_forced()) return false;
  Tensor none;
  const Conv2dForward forward{x, weight, bias, s, none}, forward_relu{x, weight, bias, s, none, true};
  const Conv2dBackward backward{x, weight, x, s, false, none, none, none},
      backward_relu{x, weight, x, s, false, none, none, none, x};
  return conv2d_forward.variant_for(forward) == conv2d_forward.variant_for(forward_relu) &&
         conv2d_backward.variant_for(backward) == conv2d_backward.variant_for(backward_relu);
}

}  // namespace

Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  const Op op("conv2d");
  const Conv2dSizes s = conv2d_sizes(x, weight, bias, options);
  const Tensor input = autocast(x), w = autocast_parameter(weight), b = autocast_parameter(bias);
  if (!fuses_relu(input, w, b, s)) return relu(conv2d(input, weight, bias, options));
  Tensor y = Tensor::empty({s.N, s.OH, s.OW, s.OC}, input.dtype(), x.device());
  conv2d_forward({input, w, b, s, y, true});
  return record("conv2d", y, {input, weight, bias},
                [x = input.saved(), w = w.saved(), y = y.saved(), s, needs_x = input.requires_grad(),
                 to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
                  const bool accumulate = claim_gradients({&to_weight, &to_bias});
                  Tensor dx = needs_x ? x.empty_like() : Tensor();
                  Tensor dweight = to_weight.tensor(dy.device()), dbias = to_bias.tensor(dy.device());
                  conv2d_backward({x, w, dy, s, accumulate, dx, dweight, dbias, y});
                  return {dx, dweight, dbias};
                });
}

}  // namespace hs
