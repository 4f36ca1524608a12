#include "kernels/transpose/transpose.h"

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

Tensor transposed(const Tensor& x) {
  Tensor y = Tensor::empty({x.shape()[1], x.shape()[0]}, x.dtype(), x.device());
  transpose_forward({x, y});
  return y;
}

}  // namespace

Tensor transpose(const Tensor& x) {
  const Op op("transpose");
  check(x.shape().rank() == 2, "transpose: x is {}, expected a matrix (rows, columns); reshape it first", x.shape());
  return record("transpose", transposed(x), {x}, [](const Tensor& dy) -> Gradients { return {transposed(dy)}; });
}

namespace {

// A piece of work is some columns of x, at least 16, so that what is read side by side is used while it is in the
// cache.
void transpose_cpu(const TransposeForward& call) {
  const int64_t R = call.x.shape()[0], C = call.x.shape()[1];
  const int64_t grain = std::max<int64_t>(16, elementwise_grain / std::max<int64_t>(R, 1));
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    T* y = call.y.mutable_data<T>();
    parallel_ranges(C, grain, [=](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < R; ++r) {
        for (int64_t c = begin; c < end; ++c) y[c * R + r] = x[r * C + c];
      }
    });
  });
}

REGISTER_KERNEL(transpose_forward, cpu, "simple", {.run = transpose_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
