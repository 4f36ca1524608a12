#include "kernels/reduce/reduce.h"

#include <algorithm>
#include <array>

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

Tensor scaled_sum(const char* name, const Tensor& x, double factor) {
  const Op op(name);
  Tensor y = Tensor::empty({}, x.dtype(), x.device());
  sum_forward({x, factor, y});
  return record(name, y, {x}, [shape = x.shape(), factor](const Tensor& dy) -> Gradients {
    Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
    sum_backward({dy, factor, dx});
    return {dx};
  });
}

}  // namespace

Tensor sum(const Tensor& x) { return scaled_sum("sum", x, 1); }

Tensor mean(const Tensor& x) {
  check(x.size() > 0, "mean: the tensor {} is empty", x.shape());
  return scaled_sum("mean", x, 1.0 / static_cast<double>(x.size()));
}

namespace {

void sum_forward_cpu(const SumForward& call) {
  constexpr int64_t pieces = 64;  // fixed: the order of additions must not depend on the number of threads
  const int64_t grain = (call.x.size() + pieces - 1) / pieces;
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* in = call.x.data<T>();
    std::array<double, pieces> partial{};
    parallel(pieces, [&, in](int64_t piece, int) {
      double total = 0;
      Block<T> block;
      in_blocks<T>(piece * grain, std::min(call.x.size(), (piece + 1) * grain), [&](int64_t first, int64_t count) {
        const Computing<T>* values = block.read(in + first, count);
        for (int64_t i = 0; i < count; ++i) total += values[i];
      });
      partial[static_cast<size_t>(piece)] = total;
    });
    double total = 0;
    for (const double part : partial) total += part;
    *call.y.mutable_data<T>() = from_computing<T>(static_cast<Computing<T>>(total * call.factor));
  });
}

void sum_backward_cpu(const SumBackward& call) {
  for_float_type(call.dy.dtype(), [&]<class T>() {
    const double gradient = to_computing(*call.dy.data<T>());
    const T value = from_computing<T>(static_cast<Computing<T>>(gradient * call.factor));
    T* out = call.dx.mutable_data<T>();
    parallel_ranges(call.dx.size(), elementwise_grain,
                    [=](int64_t begin, int64_t end) { std::fill(out + begin, out + end, value); });
  });
}

REGISTER_KERNEL(sum_forward, cpu, "simple", {.run = sum_forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(sum_backward, cpu, "simple", {.run = sum_backward_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
