// conv2d as a matrix product: im2col lays every receptive field out as a row, and the convolution becomes a GEMM.
// Zeros of dy and the padding are multiplied too, and an inf or NaN in x or weight makes NaN of them.
// Read next: kernels/conv2d/direct.cpp, the same without the copy.
#include <algorithm>

#include "kernels/conv2d/groups.h"
#include "kernels/cpu/eigen.h"

namespace hs {
namespace {

// Calls body(columns, pixel) for the taps of all receptive fields of an image: C columns each, and where the tap's
// pixel is in x, or -1 for padding. x: (H, W, C), columns: (OH*OW, KH*KW*C).
template <class T, class Body>
void for_columns(const Conv2dSizes& s, T* columns, const Body& body) {
  for (int64_t oh = 0; oh < s.OH; ++oh) {
    for (int64_t ow = 0; ow < s.OW; ++ow) {
      for (int64_t kh = 0; kh < s.KH; ++kh) {
        for (int64_t kw = 0; kw < s.KW; ++kw, columns += s.C) {
          const int64_t h = oh * s.stride + kh - s.padding, w = ow * s.stride + kw - s.padding;
          body(columns, h >= 0 && h < s.H && w >= 0 && w < s.W ? (h * s.W + w) * s.C : -1);
        }
      }
    }
  }
}

// One image to its matrix of receptive fields.
template <class T>
void im2col(const Conv2dSizes& s, const T* x, T* columns) {
  for_columns(s, columns, [&](T* to, int64_t pixel) {
    if (pixel >= 0) {
      std::copy_n(x + pixel, s.C, to);
    } else {
      std::fill_n(to, s.C, T(0));
    }
  });
}

// The transpose of im2col: adds each row back to the pixels that it came from.
template <class T>
void col2im(const Conv2dSizes& s, const T* columns, T* x) {
  std::fill_n(x, s.H * s.W * s.C, T(0));
  for_columns(s, columns, [&](const T* from, int64_t pixel) {
    for (int64_t c = 0; pixel >= 0 && c < s.C; ++c) x[pixel + c] += from[c];
  });
}

// 16-bit operands are widened: the weight once, images and results by each thread.
template <class Real>
struct Memory : Parts {
  const Conv2dSizes& s;
  const bool is_widened;
  const int64_t groups;                                                  // 0: of the forward pass
  Real* weight = take<Real>(is_widened ? s.K() * s.OC : 0);              // (K, OC)
  Each<Real> columns = each<Real>(s.OH * s.OW * s.K());                  // (OH*OW, K)
  Each<Real> images = each<Real>(is_widened ? s.H * s.W * s.C : 0);      // (H, W, C)
  Each<Real> results = each<Real>(is_widened ? s.OH * s.OW * s.OC : 0);  // (OH*OW, OC)
  Each<Real> dweights = each<Real>(s.K() * s.OC, groups);                // (K, OC)
  Each<Real> dbiases = each<Real>(s.OC, groups);                         // (OC)
};

template <class Call>
int64_t workspace_of(const Call& call) {
  const int64_t groups = std::is_same_v<Call, Conv2dBackward> ? conv2d_groups(call.sizes) : 0;
  return call.x.dtype() == DType::f64 ? Memory<double>{Parts(), call.sizes, false, groups}.bytes()
                                      : Memory<float>{Parts(), call.sizes, is_16_bit(call.x), groups}.bytes();
}

void forward_im2col(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  prepare_eigen();
  const int64_t image_size = s.H * s.W * s.C, result_size = s.OH * s.OW * s.OC;
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const T* images = call.x.data<T>();
    const T* b = call.bias.defined() ? call.bias.data<T>() : nullptr;
    const Memory<Real> m{Parts(workspace), s, stores_16_bits<T>, 0};
    const auto w = as_matrix(as_computing(call.weight.data<T>(), s.K() * s.OC, m.weight), s.K(), s.OC);
    T* out = call.y.mutable_data<T>();
    parallel(s.N, [&](int64_t n, int thread) {
      Real *mine = m.columns[thread], *result = m.results[thread];
      im2col(s, as_computing(images + n * image_size, image_size, m.images[thread]), mine);
      if constexpr (!stores_16_bits<T>) result = out + n * result_size;
      auto yn = as_matrix(result, s.OH * s.OW, s.OC);
      yn.noalias() = as_matrix(static_cast<const Real*>(mine), s.OH * s.OW, s.K()) * w;
      for (int64_t pixel = 0; b && pixel < s.OH * s.OW; ++pixel) {
        for (int64_t oc = 0; oc < s.OC; ++oc) yn(pixel, oc) += to_computing(b[oc]);
      }
      if constexpr (stores_16_bits<T>) narrow(result, out + n * result_size, result_size);
    });
  });
}

void backward_im2col(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  prepare_eigen();
  const int64_t groups = conv2d_groups(s), pixels = s.OH * s.OW, image_size = s.H * s.W * s.C;
  for_float_type(call.x.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const T* images = call.x.data<T>();
    const T* dout = call.dy.data<T>();
    T* din = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
    const Memory<Real> m{Parts(workspace), s, stores_16_bits<T>, groups};
    const auto w = as_matrix(as_computing(call.weight.data<T>(), s.K() * s.OC, m.weight), s.K(), s.OC);
    parallel(groups, [&](int64_t group, int thread) {
      Real *mine = m.columns[thread], *image = m.images[thread];
      auto dw = as_matrix(m.dweights.zeroed(group), s.K(), s.OC);
      auto db = as_matrix(m.dbiases.zeroed(group), 1, s.OC);
      for (int64_t n = group * s.N / groups; n < (group + 1) * s.N / groups; ++n) {
        const auto dyn =
            as_matrix(as_computing(dout + n * pixels * s.OC, pixels * s.OC, m.results[thread]), pixels, s.OC);
        auto cols = as_matrix(mine, pixels, s.K());
        if (call.dweight.defined()) {
          im2col(s, as_computing(images + n * image_size, image_size, image), mine);
          dw.noalias() += cols.transpose() * dyn;
        }
        // Row by row: Eigen's colwise().sum() adds in an order that depends on how the memory happens to be aligned.
        for (int64_t pixel = 0; pixel < pixels; ++pixel) db += dyn.row(pixel);
        if (din) {
          cols.noalias() = dyn * w.transpose();
          Real* to = image;
          if constexpr (!stores_16_bits<T>) to = din + n * image_size;
          col2im(s, static_cast<const Real*>(mine), to);
          if constexpr (stores_16_bits<T>) narrow(image, din + n * image_size, image_size);
        }
      }
    });
    add_groups(s, m.dweights, call.accumulate, call.dweight);
    add_groups(s, m.dbiases, call.accumulate, call.dbias);
  });
}

REGISTER_KERNEL(conv2d_forward, cpu, "im2col",
                {.run = forward_im2col,
                 .supported = [](const Conv2dForward& call) { return is_float(call.x) && without_relu(call); },
                 .workspace = workspace_of<Conv2dForward>});
REGISTER_KERNEL(conv2d_backward, cpu, "im2col",
                {.run = backward_im2col,
                 .supported = [](const Conv2dBackward& call) { return is_float(call.x) && without_relu(call); },
                 .workspace = workspace_of<Conv2dBackward>});

}  // namespace
}  // namespace hs
