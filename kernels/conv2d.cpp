// The op, and its simple variant: im2col lays every receptive field out as a row, and the convolution becomes a GEMM.
// Read next: kernels/conv2d_direct.cpp, the same without the copy.
#include "kernels/conv2d.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cast.h"
#include "kernels/cpu.h"
#include "kernels/eigen.h"

namespace hs {

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  const Op op("conv2d");
  check(x.shape().rank() == 4 && weight.shape().rank() == 2,
        "conv2d: x is {} and weight {}, expected (N, H, W, C) and "
        "(KH*KW*C, OC)",
        x.shape().to_string(), weight.shape().to_string());
  check(options.kernel_h > 0 && options.kernel_w > 0 && options.stride > 0 && options.padding >= 0,
        "conv2d: kernel {}x{}, stride {}, padding {}: expected positive sizes and a padding of 0 or more",
        options.kernel_h, options.kernel_w, options.stride, options.padding);
  Conv2dSizes s{};
  s.N = x.shape()[0], s.H = x.shape()[1], s.W = x.shape()[2], s.C = x.shape()[3];
  s.KH = options.kernel_h, s.KW = options.kernel_w, s.stride = options.stride, s.padding = options.padding;
  s.OC = weight.shape()[1];
  check(weight.shape()[0] == s.K(), "conv2d: weight is {} but a {}x{} kernel on {} channels needs {} rows",
        weight.shape().to_string(), s.KH, s.KW, s.C, s.K());
  check(!bias.defined() || bias.shape() == Shape{s.OC}, "conv2d: bias is {}, expected ({})", bias.shape().to_string(),
        s.OC);
  check(s.H + 2 * s.padding >= s.KH && s.W + 2 * s.padding >= s.KW,
        "conv2d: the image {} with padding {} is smaller than the {}x{} kernel", x.shape().to_string(), s.padding, s.KH,
        s.KW);
  s.OH = (s.H + 2 * s.padding - s.KH) / s.stride + 1;
  s.OW = (s.W + 2 * s.padding - s.KW) / s.stride + 1;

  s.tf32 = ambient().tf32;
  const Tensor input = autocast(x), w = autocast_parameter(weight), b = autocast_parameter(bias);
  Tensor y = Tensor::empty({s.N, s.OH, s.OW, s.OC}, input.dtype(), x.device());
  Tensor workspace;
  workspace = Tensor::empty({conv2d_forward.workspace(input, w, b, s, workspace, y)}, DType::u8, x.device());
  conv2d_forward(input, w, b, s, workspace, y);

  std::vector<Tensor> inputs = {input, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(
      "conv2d", y, inputs,
      [x = input.saved(), w = w.saved(), s, has_bias = bias.defined(), needs_x = input.requires_grad(),
       weight_info = weight.grad_info(), bias_info = bias.grad_info()](const Tensor& dy) -> Gradients {
        Tensor dx, dweight, dbias, workspace;
        Tensor *weight_sum = leaf_gradient(weight_info), *bias_sum = leaf_gradient(bias_info);
        // Straight into the parameters' gradients if all that are wanted have a place.
        const bool accumulate = (weight_sum || !weight_info) && (bias_sum || !bias_info) && (weight_sum || bias_sum);
        if (needs_x) dx = x.empty_like();
        if (weight_info) dweight = accumulate ? *weight_sum : Tensor::empty(w.shape(), weight_info->dtype, dy.device());
        if (bias_info) dbias = accumulate ? *bias_sum : Tensor::empty({s.OC}, bias_info->dtype, dy.device());
        workspace = Tensor::empty({conv2d_backward.workspace(x, w, dy, s, accumulate, workspace, dx, dweight, dbias)},
                                  DType::u8, dy.device());
        conv2d_backward(x, w, dy, s, accumulate, workspace, dx, dweight, dbias);
        if (accumulate) dweight = dbias = {};
        Gradients gradients = {dx, dweight};
        if (has_bias) gradients.push_back(dbias);
        return gradients;
      });
}

namespace {

// One image to its matrix of receptive fields. x: (H, W, C), columns: (OH*OW, KH*KW*C).
template <class T>
void im2col(const Conv2dSizes& s, const T* x, T* columns) {
  for (int64_t oh = 0; oh < s.OH; ++oh) {
    for (int64_t ow = 0; ow < s.OW; ++ow) {
      for (int64_t kh = 0; kh < s.KH; ++kh) {
        for (int64_t kw = 0; kw < s.KW; ++kw, columns += s.C) {
          const int64_t h = oh * s.stride + kh - s.padding, w = ow * s.stride + kw - s.padding;
          if (h >= 0 && h < s.H && w >= 0 && w < s.W) {
            std::copy_n(x + (h * s.W + w) * s.C, s.C, columns);
          } else {
            std::fill_n(columns, s.C, T(0));
          }
        }
      }
    }
  }
}

// The transpose of im2col: adds each row back to the pixels that it came from.
template <class T>
void col2im(const Conv2dSizes& s, const T* columns, T* x) {
  std::fill_n(x, s.H * s.W * s.C, T(0));
  for (int64_t oh = 0; oh < s.OH; ++oh) {
    for (int64_t ow = 0; ow < s.OW; ++ow) {
      for (int64_t kh = 0; kh < s.KH; ++kh) {
        for (int64_t kw = 0; kw < s.KW; ++kw, columns += s.C) {
          const int64_t h = oh * s.stride + kh - s.padding, w = ow * s.stride + kw - s.padding;
          if (h < 0 || h >= s.H || w < 0 || w >= s.W) continue;
          for (int64_t c = 0; c < s.C; ++c) x[(h * s.W + w) * s.C + c] += columns[c];
        }
      }
    }
  }
}

int64_t columns_size(const Conv2dSizes& s) { return s.OH * s.OW * s.K(); }

int64_t forward_workspace(const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes& s, Tensor&, Tensor&) {
  return threads() * columns_size(s) * static_cast<int64_t>(size_of(x.dtype()));
}

void forward_im2col(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dSizes& s, Tensor& workspace,
                    Tensor& y) {
  prepare_eigen();
  for_f32_or_f64(x.dtype(), [&]<class T>() {
    const T* images = x.data<T>();
    const T* b = bias.defined() ? bias.data<T>() : nullptr;
    const auto w = as_matrix(weight.data<T>(), s.K(), s.OC);
    T* columns = reinterpret_cast<T*>(workspace.mutable_data<uint8_t>());  // (threads, OH*OW, K)
    T* out = y.mutable_data<T>();
    parallel(s.N, [&](int64_t n, int thread) {
      T* mine = columns + thread * columns_size(s);
      im2col(s, images + n * s.H * s.W * s.C, mine);
      auto yn = as_matrix(out + n * s.OH * s.OW * s.OC, s.OH * s.OW, s.OC);
      yn.noalias() = as_matrix(static_cast<const T*>(mine), s.OH * s.OW, s.K()) * w;
      if (b) yn.rowwise() += as_matrix(b, 1, s.OC).row(0);
    });
  });
}

int64_t backward_workspace(const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes& s, bool, Tensor&, Tensor&,
                           Tensor&, Tensor&) {
  const int64_t partial_sums = conv2d_groups(s) * (s.K() + 1) * s.OC;
  return (threads() * columns_size(s) + partial_sums) * static_cast<int64_t>(size_of(x.dtype()));
}

void backward_im2col(const Tensor& x, const Tensor& weight, const Tensor& dy, const Conv2dSizes& s, bool accumulate,
                     Tensor& workspace, Tensor& dx, Tensor& dweight, Tensor& dbias) {
  prepare_eigen();
  const int64_t groups = conv2d_groups(s), pixels = s.OH * s.OW;
  for_f32_or_f64(x.dtype(), [&]<class T>() {
    const T* images = x.data<T>();
    const T* dout = dy.data<T>();
    const auto w = as_matrix(weight.data<T>(), s.K(), s.OC);
    T* din = dx.defined() ? dx.mutable_data<T>() : nullptr;
    T* columns = reinterpret_cast<T*>(workspace.mutable_data<uint8_t>());  // (threads, OH*OW, K)
    T* dweights = columns + threads() * columns_size(s);                   // (groups, K, OC)
    T* dbiases = dweights + groups * s.K() * s.OC;                         // (groups, OC)
    parallel(groups, [&](int64_t group, int thread) {
      T* mine = columns + thread * columns_size(s);
      auto dw = as_matrix(dweights + group * s.K() * s.OC, s.K(), s.OC);
      auto db = as_matrix(dbiases + group * s.OC, 1, s.OC);
      dw.setZero();
      db.setZero();
      for (int64_t n = group * s.N / groups; n < (group + 1) * s.N / groups; ++n) {
        const auto dyn = as_matrix(dout + n * pixels * s.OC, pixels, s.OC);
        auto cols = as_matrix(mine, pixels, s.K());
        if (dweight.defined()) {
          im2col(s, images + n * s.H * s.W * s.C, mine);
          dw.noalias() += cols.transpose() * dyn;
        }
        // Row by row: Eigen's colwise().sum() adds in an order that depends on how the memory happens to be aligned.
        for (int64_t pixel = 0; pixel < pixels; ++pixel) db += dyn.row(pixel);
        if (din) {
          cols.noalias() = dyn * w.transpose();
          col2im(s, static_cast<const T*>(mine), din + n * s.H * s.W * s.C);
        }
      }
    });
    if (dweight.defined()) {
      auto total = as_matrix(dweight.mutable_data<T>(), s.K(), s.OC);
      if (!accumulate) total.setZero();
      for (int64_t group = 0; group < groups; ++group) total += as_matrix(dweights + group * s.K() * s.OC, s.K(), s.OC);
    }
    if (dbias.defined()) {
      auto total = as_matrix(dbias.mutable_data<T>(), 1, s.OC);
      if (!accumulate) total.setZero();
      for (int64_t group = 0; group < groups; ++group) total += as_matrix(dbiases + group * s.OC, 1, s.OC);
    }
  });
}

REGISTER_KERNEL(conv2d_forward, cpu, "im2col",
                {.run = forward_im2col,
                 .supported = [](const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes&, Tensor&,
                                 Tensor&) { return is_f32_or_f64(x); },
                 .workspace = forward_workspace});
REGISTER_KERNEL(conv2d_backward, cpu, "im2col",
                {.run = backward_im2col,
                 .supported = [](const Tensor& x, const Tensor&, const Tensor&, const Conv2dSizes&, bool, Tensor&,
                                 Tensor&, Tensor&, Tensor&) { return is_f32_or_f64(x); },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
