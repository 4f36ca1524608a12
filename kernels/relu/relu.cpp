#include "kernels/relu/relu.h"

#include "kernels/cpu/elements.h"

namespace hs {

Tensor relu(const Tensor& x) {
  const Op op("relu");
  Tensor y = x.empty_like();
  relu_forward({x, y});
  // dL/dx = dL/dy where y > 0. Saving y, not x, lets the caller free x.
  return record("relu", y, {x}, [y = y.saved()](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    relu_backward({y, dy, dx});
    return {dx};
  });
}

namespace {

void relu_forward_cpu(const ReluForward& call) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    parallel_ranges(call.x.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T value = in[i];                     // read on both paths, so that the compiler may use vectors
        out[i] = is_closed(value) ? T{0} : value;  // closed: value <= 0, which a NaN is not
      }
    });
  });
}

void relu_backward_cpu(const ReluBackward& call) {
  for_float_type(call.y.dtype(), [&]<class T>() {
    const T* out = call.y.data<T>();
    const T* dout = call.dy.data<T>();
    T* din = call.dx.mutable_data<T>();
    parallel_ranges(call.y.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T gradient = dout[i];
        din[i] = is_closed(out[i]) ? T{0} : gradient;
      }
    });
  });
}

REGISTER_KERNEL(relu_forward, cpu, "simple", {.run = relu_forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(relu_backward, cpu, "simple", {.run = relu_backward_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
