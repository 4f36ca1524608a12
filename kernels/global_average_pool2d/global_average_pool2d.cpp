#include "kernels/global_average_pool2d/global_average_pool2d.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor global_average_pool2d(const Tensor& x) {
  const Op op("global_average_pool2d");
  check(x.shape().rank() == 4 && x.shape()[1] > 0 && x.shape()[2] > 0,
        "global_average_pool2d: x is {}, expected (N, H, W, C) with at least one pixel", x.shape());
  Tensor y = Tensor::empty({x.shape()[0], x.shape()[3]}, x.dtype(), x.device());
  global_average_pool2d_forward({x, y});
  return record("global_average_pool2d", y, {x}, [shape = x.shape()](const Tensor& dy) -> Gradients {
    Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
    global_average_pool2d_backward({dy, dx});
    return {dx};
  });
}

namespace {

// The channels of an image are processed in blocks of block_size, whose sums stay in the first-level cache.
template <class Body>
void for_channels(const Shape& x, const Body& body) {
  parallel(x[0], [&](int64_t n, int) {
    for (int64_t c = 0; c < x[3]; c += block_size) body(n, c, std::min(block_size, x[3] - c));
  });
}

// Sums are taken in double and rounded once.
void forward_cpu(const GlobalAveragePool2dForward& call) {
  const int64_t pixels = call.x.shape()[1] * call.x.shape()[2], C = call.x.shape()[3];
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    T* y = call.y.mutable_data<T>();
    for_channels(call.x.shape(), [=](int64_t n, int64_t first, int64_t count) {
      double sums[block_size] = {};
      Block<T> block;
      for (int64_t pixel = n * pixels; pixel < (n + 1) * pixels; ++pixel) {
        const Computing<T>* values = block.read(x + pixel * C + first, count);
        for (int64_t c = 0; c < count; ++c) sums[c] += values[c];
      }
      Computing<T> means[block_size];
      for (int64_t c = 0; c < count; ++c) means[c] = static_cast<Computing<T>>(sums[c] / static_cast<double>(pixels));
      store_block(means, y + n * C + first, count);
    });
  });
}

void backward_cpu(const GlobalAveragePool2dBackward& call) {
  const int64_t pixels = call.dx.shape()[1] * call.dx.shape()[2], C = call.dx.shape()[3];
  for_float_type(call.dy.dtype(), [&]<class T>() {
    const T* dy = call.dy.data<T>();
    T* dx = call.dx.mutable_data<T>();
    for_channels(call.dx.shape(), [=](int64_t n, int64_t first, int64_t count) {
      T shares[block_size];
      map_range(
          0, count, [=](auto d) { return d / static_cast<Computing<T>>(pixels); }, shares, dy + n * C + first);
      for (int64_t pixel = n * pixels; pixel < (n + 1) * pixels; ++pixel) {
        std::copy_n(shares, count, dx + pixel * C + first);
      }
    });
  });
}

REGISTER_KERNEL(global_average_pool2d_forward, cpu, "simple", {.run = forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(global_average_pool2d_backward, cpu, "simple", {.run = backward_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
