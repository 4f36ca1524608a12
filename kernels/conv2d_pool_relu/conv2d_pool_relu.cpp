// The op. Its kernels, simplest first. CPU: naive.cpp; direct.cpp and direct_backward.cpp; for bf16 avx512_bf16.cpp and
// amx.h. CUDA: naive.cu; direct.cu for the first layer; mma.cu and mma_backward.cu for the others in 16 bits.
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"

#include "kernels/cast/cast.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"

namespace hs {

namespace {

bool is_forced() {
  return conv2d_forward.is_forced() || conv2d_backward.is_forced() || max_pool2d_forward.is_forced() ||
         max_pool2d_backward.is_forced() || relu_forward.is_forced() || relu_backward.is_forced();
}

// Undefined if no kernel supports the call.
Tensor fused(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
             const DropoutRule* dropped = nullptr) {
  const Op op("conv2d_pool_relu");
  const Conv2dSizes s = conv2d_sizes(x, weight, bias, options);
  if (s.OH < 2 || s.OW < 2) return {};  // the three ops say what is wrong
  const Tensor input = autocast(x), w = autocast_parameter(weight), b = autocast_parameter(bias);
  const VariantBase* variant =
      conv2d_pool_relu_forward.variant_for({input, w, b, s, no_tensor(), no_tensor(), dropped});
  if (dropped && !variant) return {};
  const bool is_faster = variant && variant->rank > slower_than_three_ops;
  if (!conv2d_pool_relu_forward.is_forced() && !is_faster) return {};
  const Shape pooled{s.N, s.OH / 2, s.OW / 2, s.OC};
  Tensor y = Tensor::empty(pooled, input.dtype(), x.device());
  Tensor winner = Tensor::empty(pooled, DType::u8, x.device());
  conv2d_pool_relu_forward({input, w, b, s, y, winner, dropped});
  const double factor = dropped ? dropout_scale(dropped->rate) : 1;

  return record("conv2d_pool_relu", y, {input, weight, bias},
                [x = input.saved(), w = w.saved(), winner = winner.saved(), s, factor, needs_x = input.requires_grad(),
                 to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
                  const GradientMode mode = gradient_mode({&to_weight, &to_bias});
                  Tensor dx = needs_x ? x.empty_like() : Tensor();
                  Tensor dweight = to_weight.tensor(mode, dy.device());
                  Tensor dbias = to_bias.tensor(mode, dy.device());
                  conv2d_pool_relu_backward(
                      {x, w, winner, dy, s, mode == GradientMode::add, dx, dweight, dbias, static_cast<float>(factor)});
                  if (mode != GradientMode::fresh) dweight = dbias = {};
                  return {dx, dweight, dbias};
                });
}

}  // namespace

Tensor conv2d_pool_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
                        const DropoutRule& dropped) {
  Tensor y;
  if (ambient().fuse && conv2d_pool_relu_forward.exists_on(x.device()) && !is_forced()) {
    const bool drops = dropped.rate > 0 && x.device() == Device::cuda && !dropout_mask.is_forced();
    if (drops) y = fused(x, weight, bias, options, &dropped);
    if (y.defined()) return y;
    y = fused(x, weight, bias, options);
  }
  if (!y.defined()) y = relu(max_pool2d(conv2d(x, weight, bias, options), 2, 2));
  return dropout(y, dropped.rate, dropped.stream, dropped.step);
}

}  // namespace hs
