// The op: checks the shapes, allocates, calls the slots and records the backward rule. Its kernels, simplest first: the
// naive ones below; im2col.cpp, direct.cpp, winograd.cpp; bf16: avx512_bf16.cpp, amx.cpp; CUDA: im2col.cu, direct.cu;
// in 16 bits mma.cu, mma_first_layer.cu. With ReLU: relu.cpp.
#include "kernels/conv2d/conv2d.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu/elements.h"
#include "kernels/gemm/gemm.h"

namespace hs {

Conv2dSizes conv2d_sizes(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  check(x.shape().rank() == 4 && weight.shape().rank() == 2,
        "conv2d: x is {} and weight {}, expected (N, H, W, C) and (KH*KW*C, OC)", x.shape(), weight.shape());
  check(options.kernel_h > 0 && options.kernel_w > 0 && options.stride > 0 && options.padding >= 0,
        "conv2d: kernel {}x{}, stride {}, padding {}: expected positive sizes and a padding of 0 or more",
        options.kernel_h, options.kernel_w, options.stride, options.padding);
  Conv2dSizes s{};
  s.N = x.shape()[0], s.H = x.shape()[1], s.W = x.shape()[2], s.C = x.shape()[3];
  s.KH = options.kernel_h, s.KW = options.kernel_w, s.stride = options.stride, s.padding = options.padding;
  s.OC = weight.shape()[1];
  check(weight.shape()[0] == s.K(), "conv2d: weight is {} but a {}x{} kernel on {} channels (NHWC) needs {} rows",
        weight.shape(), s.KH, s.KW, s.C, s.K());
  check(!bias.defined() || bias.shape() == Shape{s.OC}, "conv2d: bias is {}, expected ({})", bias.shape(), s.OC);
  check(s.H + 2 * s.padding >= s.KH && s.W + 2 * s.padding >= s.KW,
        "conv2d: the image {} with padding {} is smaller than the {}x{} kernel", x.shape(), s.padding, s.KH, s.KW);
  s.OH = (s.H + 2 * s.padding - s.KH) / s.stride + 1;
  s.OW = (s.W + 2 * s.padding - s.KW) / s.stride + 1;
  s.tf32 = ambient().tf32;
  return s;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  const Op op("conv2d");
  const Conv2dSizes s = conv2d_sizes(x, weight, bias, options);
  const Tensor input = autocast(x), w = autocast_parameter(weight), b = autocast_parameter(bias);
  Tensor y = Tensor::empty({s.N, s.OH, s.OW, s.OC}, input.dtype(), x.device());
  conv2d_forward({input, w, b, s, y});
  return record("conv2d", y, {input, weight, bias},
                [x = input.saved(), w = w.saved(), s, needs_x = input.requires_grad(),
                 to_weight = GradientTarget(weight), to_bias = GradientTarget(bias)](const Tensor& dy) -> Gradients {
                  const bool accumulate = claim_gradients({&to_weight, &to_bias});
                  Tensor dx = needs_x ? x.empty_like() : Tensor();
                  Tensor dweight = to_weight.tensor(dy.device()), dbias = to_bias.tensor(dy.device());
                  conv2d_backward({x, w, dy, s, accumulate, dx, dweight, dbias});
                  return {dx, dweight, dbias};
                });
}

// conv2d by its definition, a loop for each index: the variant to read first, and the slowest. Next:
// kernels/conv2d/im2col.cpp, where the same sums become one matrix product. The sums skip the padding, so an inf in a
// weight is multiplied only by zeros that are in the data.
namespace {

// Calls body(input pixel, output pixel, tap) for the taps of the kernel that lie inside the image, for output pixels of
// one image in order. A pixel is an index without its channels.
template <class Body>
void for_taps(const Conv2dSizes& s, int64_t n, const Body& body) {
  for (int64_t oh = 0; oh < s.OH; ++oh) {
    for (int64_t ow = 0; ow < s.OW; ++ow) {
      for (int64_t kh = 0; kh < s.KH; ++kh) {
        for (int64_t kw = 0; kw < s.KW; ++kw) {
          const int64_t h = oh * s.stride + kh - s.padding, w = ow * s.stride + kw - s.padding;
          if (h < 0 || h >= s.H || w < 0 || w >= s.W) continue;
          body((n * s.H + h) * s.W + w, (n * s.OH + oh) * s.OW + ow, kh * s.KW + kw);
        }
      }
    }
  }
}

void forward_naive(const Conv2dForward& call) {
  const Conv2dSizes& s = call.sizes;
  for_f32_or_f64(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *weight = call.weight.data<T>();
    const T* bias = call.bias.defined() ? call.bias.data<T>() : nullptr;
    T* y = call.y.mutable_data<T>();
    parallel(s.N, [&](int64_t n, int) {
      for (int64_t pixel = n * s.OH * s.OW; pixel < (n + 1) * s.OH * s.OW; ++pixel) {
        for (int64_t oc = 0; oc < s.OC; ++oc) y[pixel * s.OC + oc] = bias ? bias[oc] : 0;
      }
      for_taps(s, n, [&](int64_t in, int64_t out, int64_t tap) {
        for (int64_t c = 0; c < s.C; ++c) {
          for (int64_t oc = 0; oc < s.OC; ++oc) {
            y[out * s.OC + oc] += x[in * s.C + c] * weight[(tap * s.C + c) * s.OC + oc];
          }
        }
      });
    });
  });
}

template <class T>
void add_dx(const Conv2dBackward& call) {
  const Conv2dSizes& s = call.sizes;
  const T *weight = call.weight.data<T>(), *dy = call.dy.data<T>();
  T* dx = call.dx.mutable_data<T>();
  parallel(s.N, [&](int64_t n, int) {
    const int64_t image = s.H * s.W * s.C;
    std::fill_n(dx + n * image, image, T{0});
    for_taps(s, n, [&](int64_t in, int64_t out, int64_t tap) {
      for (int64_t c = 0; c < s.C; ++c) {
        T sum = 0;
        for (int64_t oc = 0; oc < s.OC; ++oc) sum += dy[out * s.OC + oc] * weight[(tap * s.C + c) * s.OC + oc];
        dx[in * s.C + c] += sum;
      }
    });
  });
}

int64_t backward_workspace(const Conv2dBackward& call) {
  return call.dweight.defined() ? call.dweight.size() * static_cast<int64_t>(sizeof(double)) : 0;
}

// In f64, because each of N * OH * OW products is rounded to the size of their sum. Samples in turn: all add to it.
template <class T>
void add_dweight(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const T *x = call.x.data<T>(), *dy = call.dy.data<T>();
  T* dweight = call.dweight.mutable_data<T>();
  auto* sums = reinterpret_cast<double*>(workspace.mutable_data<uint8_t>());
  for (int64_t i = 0; i < s.K() * s.OC; ++i) sums[i] = call.accumulate ? dweight[i] : 0;
  for (int64_t n = 0; n < s.N; ++n) {
    for_taps(s, n, [&](int64_t in, int64_t out, int64_t tap) {
      for (int64_t c = 0; c < s.C; ++c) {
        for (int64_t oc = 0; oc < s.OC; ++oc) {
          sums[(tap * s.C + c) * s.OC + oc] += x[in * s.C + c] * dy[out * s.OC + oc];
        }
      }
    });
  }
  std::copy_n(sums, s.K() * s.OC, dweight);
}

void backward_naive(const Conv2dBackward& call, Tensor& workspace) {
  if (call.dbias.defined()) column_sum({call.dy, call.accumulate, call.dbias});
  for_f32_or_f64(call.x.dtype(), [&]<class T>() {
    if (call.dx.defined()) add_dx<T>(call);
    if (call.dweight.defined()) add_dweight<T>(call, workspace);
  });
}

constexpr auto takes_no_relu = [](const auto& call) { return is_f32_or_f64(call.x) && without_relu(call); };

REGISTER_KERNEL(conv2d_forward, cpu, "naive", {.run = forward_naive, .supported = takes_no_relu, .rank = -10});
REGISTER_KERNEL(conv2d_backward, cpu, "naive",
                {.run = backward_naive, .supported = takes_no_relu, .workspace = backward_workspace, .rank = -10});

}  // namespace
}  // namespace hs
