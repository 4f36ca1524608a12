// The op. Its kernels, simplest first: the naive ones below and in naive.cu; those of kernels/conv2d/ that serve both
// ops: direct.cpp, direct_backward.cpp, avx512_bf16.cpp, amx.cpp (with amx.h here) and direct.cu; mma.cu and
// mma_backward.cu for CUDA in 16 bits.
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"

#include <algorithm>

#include "kernels/cpu/elements.h"
#include "kernels/gemm/gemm.h"
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
  const Conv2dPoolReluForward asked{input, w, b, s, no_tensor(), no_tensor(), dropped};
  const bool is_refusal = !dropped && conv2d_pool_relu_forward.is_forced();  // of the variant that was forced
  if (!conv2d_pool_relu_forward.is_taken(asked) && !is_refusal) return {};
  const Shape pooled{s.N, s.OH / 2, s.OW / 2, s.OC};
  Tensor y = Tensor::empty(pooled, input.dtype(), x.device());
  Tensor winner = Tensor::empty(pooled, DType::u8, x.device());
  conv2d_pool_relu_forward({input, w, b, s, y, winner, dropped});
  const double factor = dropped ? dropout_scale(dropped->rate) : 1;

  return record(
      "conv2d_pool_relu", y, {input, weight, bias},
      [x = input.saved(), w = w.saved(), winner = winner.saved(), s, factor, needs_x = input.requires_grad(),
       to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
        const bool accumulate = claim_gradients({&to_weight, &to_bias});
        Tensor dx = needs_x ? x.empty_like() : Tensor();
        Tensor dweight = to_weight.tensor(dy.device());
        Tensor dbias = to_bias.tensor(dy.device());
        conv2d_pool_relu_backward({x, w, winner, dy, s, accumulate, dx, dweight, dbias, static_cast<float>(factor)});
        return {dx, dweight, dbias};
      });
}

}  // namespace

Tensor conv2d_pool_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
                        const DropoutRule& dropped) {
  const bool fuses = conv2d_pool_relu_forward.exists_on(x.device()) && !is_forced();
  const bool drops = fuses && dropped.rate > 0 && x.device() == Device::cuda && !dropout_mask.is_forced();
  Tensor y = drops ? fused(x, weight, bias, options, &dropped) : Tensor();
  if (y.defined()) return y;
  if (fuses) y = fused(x, weight, bias, options);
  if (!y.defined()) y = relu(max_pool2d(conv2d(x, weight, bias, options), 2, 2));
  return dropout(y, dropped.rate, dropped.stream, dropped.step);
}

// conv2d_pool_relu by its definition: a loop for each index. Read it first; then direct.cpp. As in
// kernels/conv2d/conv2d.cpp, the sums skip the padding.
namespace {

// Calls body(input, weight) with the indices of the products that pixel (oh, ow) of output channel oc adds up.
template <class Body>
void for_products(const Conv2dSizes& s, int64_t n, int64_t oh, int64_t ow, int64_t oc, const Body& body) {
  for (int64_t kh = 0; kh < s.KH; ++kh) {
    for (int64_t kw = 0; kw < s.KW; ++kw) {
      const int64_t h = oh * s.stride + kh - s.padding, w = ow * s.stride + kw - s.padding;
      if (h < 0 || h >= s.H || w < 0 || w >= s.W) continue;
      for (int64_t c = 0; c < s.C; ++c) {
        body(((n * s.H + h) * s.W + w) * s.C + c, ((kh * s.KW + kw) * s.C + c) * s.OC + oc);
      }
    }
  }
}

// Calls body(n, ph, pw, oc, index of the pooled value) for samples first to last - 1.
template <class Body>
void for_pooled(const Conv2dSizes& s, int64_t first, int64_t last, const Body& body) {
  int64_t i = first * (s.OH / 2) * (s.OW / 2) * s.OC;
  for (int64_t n = first; n < last; ++n) {
    for (int64_t ph = 0; ph < s.OH / 2; ++ph) {
      for (int64_t pw = 0; pw < s.OW / 2; ++pw) {
        for (int64_t oc = 0; oc < s.OC; ++oc, ++i) body(n, ph, pw, oc, i);
      }
    }
  }
}

void forward_naive(const Conv2dPoolReluForward& call) {
  const Conv2dSizes& s = call.sizes;
  for_f32_or_f64(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *weight = call.weight.data<T>();
    const T* bias = call.bias.defined() ? call.bias.data<T>() : nullptr;
    T* y = call.y.mutable_data<T>();
    uint8_t* winner = call.winner.mutable_data<uint8_t>();
    parallel(s.N, [&](int64_t sample, int) {
      for_pooled(s, sample, sample + 1, [&](int64_t n, int64_t ph, int64_t pw, int64_t oc, int64_t i) {
        for (uint8_t place = 0; place < 4; ++place) {
          T sum = bias ? bias[oc] : 0;
          for_products(s, n, 2 * ph + place / 2, 2 * pw + place % 2, oc,
                       [&](int64_t in, int64_t w) { sum += x[in] * weight[w]; });
          if (place == 0 || (!(sum <= y[i]) && y[i] == y[i])) {  // true for the first NaN
            y[i] = sum;
            winner[i] = place;
          }
        }
        if (y[i] <= 0) {  // false for NaN, which is kept
          y[i] = 0;
          winner[i] = closed;
        }
      });
    });
  });
}

// Samples one after another: each adds to the same weights.
void backward_naive(const Conv2dPoolReluBackward& call) {
  const Conv2dSizes& s = call.sizes;
  for_f32_or_f64(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *weight = call.weight.data<T>(), *dy = call.dy.data<T>();
    const uint8_t* winner = call.winner.data<uint8_t>();
    T* dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
    T* dweight = call.dweight.defined() ? call.dweight.mutable_data<T>() : nullptr;
    T* dbias = call.dbias.defined() ? call.dbias.mutable_data<T>() : nullptr;
    if (dx) std::fill_n(dx, call.dx.size(), T{0});
    if (dweight && !call.accumulate) std::fill_n(dweight, call.dweight.size(), T{0});
    if (dbias && !call.accumulate) std::fill_n(dbias, s.OC, T{0});
    for_pooled(s, 0, s.N, [&](int64_t n, int64_t ph, int64_t pw, int64_t oc, int64_t i) {
      if (winner[i] == closed || dy[i] == 0) return;
      if (dbias) dbias[oc] += dy[i];
      for_products(s, n, 2 * ph + winner[i] / 2, 2 * pw + winner[i] % 2, oc, [&](int64_t in, int64_t w) {
        if (dx) dx[in] += dy[i] * weight[w];
        if (dweight) dweight[w] += dy[i] * x[in];
      });
    });
  });
}

REGISTER_KERNEL(conv2d_pool_relu_forward, cpu, "naive",
                {.run = forward_naive, .supported = takes_f32_or_f64, .rank = -10});
REGISTER_KERNEL(conv2d_pool_relu_backward, cpu, "naive",
                {.run = backward_naive, .supported = takes_f32_or_f64, .rank = -10});

}  // namespace
}  // namespace hs
