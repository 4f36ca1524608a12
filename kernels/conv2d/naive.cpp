// conv2d by its definition (kernels/conv2d/conv2d.h): a loop for each index. It is the variant to read first, and the
// slowest. Next: kernels/conv2d/im2col.cpp, where the same sums become one matrix product. The sums skip the
// padding, so an inf in a weight is multiplied only by zeros that are in the data.
#include <algorithm>

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/elements.h"

namespace hs {
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

// In f64, because a weight sums N * OH * OW products, and each is rounded to the size of the sum. Samples one after
// another: each adds to the same elements.
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

template <class T>
void add_dbias(const Conv2dBackward& call) {
  const Conv2dSizes& s = call.sizes;
  const T* dy = call.dy.data<T>();
  T* dbias = call.dbias.mutable_data<T>();
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    double sum = call.accumulate ? dbias[oc] : 0;
    for (int64_t pixel = 0; pixel < s.N * s.OH * s.OW; ++pixel) sum += dy[pixel * s.OC + oc];
    dbias[oc] = static_cast<T>(sum);
  }
}

void backward_naive(const Conv2dBackward& call, Tensor& workspace) {
  for_f32_or_f64(call.x.dtype(), [&]<class T>() {
    if (call.dx.defined()) add_dx<T>(call);
    if (call.dweight.defined()) add_dweight<T>(call, workspace);
    if (call.dbias.defined()) add_dbias<T>(call);
  });
}

REGISTER_KERNEL(conv2d_forward, cpu, "naive",
                {.run = forward_naive,
                 .supported = [](const Conv2dForward& call) { return is_f32_or_f64(call.x) && without_relu(call); },
                 .rank = -10});
REGISTER_KERNEL(conv2d_backward, cpu, "naive",
                {.run = backward_naive,
                 .supported = [](const Conv2dBackward& call) { return is_f32_or_f64(call.x) && without_relu(call); },
                 .workspace = backward_workspace,
                 .rank = -10});

}  // namespace
}  // namespace hs
