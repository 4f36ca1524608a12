#include "kernels/max_pool2d/max_pool2d.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor max_pool2d(const Tensor& x, int64_t window, int64_t stride) {
  const Op op("max_pool2d");
  check(x.shape().rank() == 4, "max_pool2d: x is {}, expected (N, H, W, C)", x.shape());
  check(window >= 1 && window <= 16 && stride >= 1,
        "max_pool2d: window {} and stride {}, expected 1 to 16 and 1 or more", window, stride);
  check(x.shape()[1] >= window && x.shape()[2] >= window, "max_pool2d: the image {} is smaller than the {}x{} window",
        x.shape(), window, window);
  const Shape pooled{x.shape()[0], (x.shape()[1] - window) / stride + 1, (x.shape()[2] - window) / stride + 1,
                     x.shape()[3]};
  Tensor y = Tensor::empty(pooled, x.dtype(), x.device()), choice = Tensor::empty(pooled, DType::u8, x.device());
  max_pool2d_forward({x, window, stride, y, choice});
  return record("max_pool2d", y, {x},
                [choice = choice.saved(), shape = x.shape(), window, stride](const Tensor& dy) -> Gradients {
                  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
                  max_pool2d_backward({dy, choice, window, stride, dx});
                  return {dx};
                });
}

namespace {

void forward_cpu(const MaxPool2dForward& call) {
  const int64_t window = call.window, stride = call.stride;
  const int64_t N = call.x.shape()[0], H = call.x.shape()[1], W = call.x.shape()[2], C = call.x.shape()[3];
  const int64_t OH = call.y.shape()[1], OW = call.y.shape()[2];
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    T* y = call.y.mutable_data<T>();
    uint8_t* choice = call.choice.mutable_data<uint8_t>();
    parallel(N * OH, [=](int64_t row, int) {
      const int64_t n = row / OH, oh = row % OH;
      for (int64_t o = row * OW * C; o < (row + 1) * OW * C; ++o) {
        const int64_t ow = o / C % OW, c = o % C;
        const T* corner = x + ((n * H + oh * stride) * W + ow * stride) * C + c;
        int64_t best = 0;
        Computing<T> largest = to_computing(corner[0]);
        for (int64_t i = 1; i < window * window; ++i) {
          const Computing<T> value = to_computing(corner[(i / window * W + i % window) * C]);
          if (value <= largest || largest != largest) continue;  // a NaN beats any number, and nothing beats it
          best = i, largest = value;
        }
        y[o] = from_computing<T>(largest);
        choice[o] = static_cast<uint8_t>(best);
      }
    });
  });
}

// Each input gathers the gradients of the windows that chose it, so that a sum is rounded once, whatever the type.
void backward_cpu(const MaxPool2dBackward& call) {
  const int64_t window = call.window, stride = call.stride;
  const int64_t N = call.dx.shape()[0], H = call.dx.shape()[1], W = call.dx.shape()[2], C = call.dx.shape()[3];
  const int64_t OH = call.dy.shape()[1], OW = call.dy.shape()[2];
  // The first window that contains row or column i; the last is i / stride, or the last window.
  const auto first_window = [=](int64_t i) { return i < window ? 0 : (i - window) / stride + 1; };
  for_float_type(call.dy.dtype(), [&]<class T>() {
    const T* dy = call.dy.data<T>();
    const uint8_t* choice = call.choice.data<uint8_t>();
    T* dx = call.dx.mutable_data<T>();
    parallel(N * H, [=](int64_t row, int) {
      const int64_t n = row / H, h = row % H;
      for (int64_t i = row * W * C; i < (row + 1) * W * C; ++i) {
        const int64_t w = i / C % W, c = i % C;
        Computing<T> sum = 0;
        for (int64_t oh = first_window(h); oh <= std::min(h / stride, OH - 1); ++oh) {
          for (int64_t ow = first_window(w); ow <= std::min(w / stride, OW - 1); ++ow) {
            const int64_t o = ((n * OH + oh) * OW + ow) * C + c;
            if (choice[o] == (h - oh * stride) * window + w - ow * stride) sum += to_computing(dy[o]);
          }
        }
        dx[i] = from_computing<T>(sum);
      }
    });
  });
}

REGISTER_KERNEL(max_pool2d_forward, cpu, "simple", {.run = forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(max_pool2d_backward, cpu, "simple", {.run = backward_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
