// The op: checks the shapes, allocates, calls the slots and records the backward rule. Its kernels, simplest first:
// naive.cpp, im2col.cpp, direct.cpp; for bf16 avx512_bf16.cpp and amx.cpp; for CUDA im2col.cu.
#include "kernels/conv2d/conv2d.h"

#include "engine/check.h"
#include "kernels/cast/cast.h"
#include "kernels/relu/relu.h"

namespace hs {

Conv2dSizes conv2d_sizes(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  check(x.shape().rank() == 4 && weight.shape().rank() == 2,
        "conv2d: x is {} and weight {}, expected (N, H, W, C) and "
        "(KH*KW*C, OC)",
        x.shape(), weight.shape());
  check(options.kernel_h > 0 && options.kernel_w > 0 && options.stride > 0 && options.padding >= 0,
        "conv2d: kernel {}x{}, stride {}, padding {}: expected positive sizes and a padding of 0 or more",
        options.kernel_h, options.kernel_w, options.stride, options.padding);
  Conv2dSizes s{};
  s.N = x.shape()[0], s.H = x.shape()[1], s.W = x.shape()[2], s.C = x.shape()[3];
  s.KH = options.kernel_h, s.KW = options.kernel_w, s.stride = options.stride, s.padding = options.padding;
  s.OC = weight.shape()[1];
  check(weight.shape()[0] == s.K(), "conv2d: weight is {} but a {}x{} kernel on {} channels needs {} rows",
        weight.shape(), s.KH, s.KW, s.C, s.K());
  check(!bias.defined() || bias.shape() == Shape{s.OC}, "conv2d: bias is {}, expected ({})", bias.shape(), s.OC);
  check(s.H + 2 * s.padding >= s.KH && s.W + 2 * s.padding >= s.KW,
        "conv2d: the image {} with padding {} is smaller than the {}x{} kernel", x.shape(), s.padding, s.KH, s.KW);
  s.OH = (s.H + 2 * s.padding - s.KH) / s.stride + 1;
  s.OW = (s.W + 2 * s.padding - s.KW) / s.stride + 1;
  s.tf32 = ambient().tf32;
  return s;
}

namespace {

// Whether the variants that are used without relu take it over; others would be slower than two passes.
bool fuses_relu(const Conv2dForward& forward) {
  if (!ambient().fuse || relu_forward.is_forced() || relu_backward.is_forced()) return false;
  const auto& [x, weight, bias, s, y, relu] = forward;
  Tensor none;
  const Conv2dBackward backward{x, weight, y, s, false, none, none, none},
      with_relu{x, weight, y, s, false, none, none, none, y};
  return conv2d_forward.variant_for({x, weight, bias, s, none}) == conv2d_forward.variant_for(forward) &&
         conv2d_backward.variant_for(backward) == conv2d_backward.variant_for(with_relu);
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  const Op op("conv2d");
  const Conv2dSizes s = conv2d_sizes(x, weight, bias, options);
  const Tensor input = autocast(x), w = autocast_parameter(weight), b = autocast_parameter(bias);
  Tensor y = Tensor::empty({s.N, s.OH, s.OW, s.OC}, input.dtype(), x.device());
  const bool fused = options.relu && fuses_relu({input, w, b, s, y, true});
  conv2d_forward({input, w, b, s, y, fused});

  y = record(
      "conv2d", y, {input, weight, bias},
      [x = input.saved(), w = w.saved(), relu_y = fused ? y.saved() : Tensor(), s, needs_x = input.requires_grad(),
       to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
        const GradientMode mode = gradient_mode({&to_weight, &to_bias});
        Tensor dx = needs_x ? x.empty_like() : Tensor();
        Tensor dweight = to_weight.tensor(mode, dy.device());
        Tensor dbias = to_bias.tensor(mode, dy.device());
        conv2d_backward({x, w, dy, s, mode == GradientMode::add, dx, dweight, dbias, relu_y});
        if (mode != GradientMode::fresh) dweight = dbias = {};
        return {dx, dweight, dbias};
      });
  return fused || !options.relu ? y : relu(y);
}

}  // namespace hs
