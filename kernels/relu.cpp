#include "kernels/relu.h"

#include "kernels/cpu.h"

namespace hs {

Tensor relu(const Tensor& x) {
  const Op op("relu");
  Tensor y = x.empty_like();
  relu_forward(x, y);
  // dL/dx = dL/dy where y > 0. Saving y, not x, lets the caller free x.
  return record("relu", y, {x}, [y = y.saved()](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    relu_backward(y, dy, dx);
    return {dx};
  });
}

namespace {

void relu_forward_cpu(const Tensor& x, Tensor& y) {
  for_float_type(x.dtype(), [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.mutable_data<T>();
    parallel_ranges(x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = in[i] <= 0 ? T(0) : in[i];  // false for NaN, which is kept
    });
  });
}

void relu_backward_cpu(const Tensor& y, const Tensor& dy, Tensor& dx) {
  for_float_type(y.dtype(), [&]<class T>() {
    const T* out = y.data<T>();
    const T* dout = dy.data<T>();
    T* din = dx.mutable_data<T>();
    parallel_ranges(y.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T gradient = dout[i];  // read on both paths, so that the compiler may use vectors
        din[i] = out[i] <= 0 ? T(0) : gradient;
      }
    });
  });
}

REGISTER_KERNEL(relu_forward, cpu, "simple",
                {.run = relu_forward_cpu, .supported = [](const Tensor& x, Tensor&) { return is_f32_or_f64(x); }});
REGISTER_KERNEL(relu_backward, cpu, "simple",
                {.run = relu_backward_cpu,
                 .supported = [](const Tensor& y, const Tensor&, Tensor&) { return is_f32_or_f64(y); }});

}  // namespace
}  // namespace hs
