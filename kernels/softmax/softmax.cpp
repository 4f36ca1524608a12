#include "kernels/softmax/softmax.h"

#include <algorithm>
#include <cmath>

#include "engine/check.h"
#include "kernels/cpu/elements.h"

namespace hs {

Tensor softmax(const Tensor& x) {
  const Op op("softmax");
  check(x.shape().rank() > 0 && x.shape().back() > 0, "softmax: x is {}, expected at least one number in a row", x);
  Tensor y = x.empty_like();
  softmax_forward({x, y});
  return record("softmax", y, {x}, [x = x.saved()](const Tensor& dy) -> Gradients {
    Tensor dx = dy.empty_like();
    softmax_backward({x, dy, dx});
    return {dx};
  });
}

namespace {

// Calls body(row) with the first element of each row of C numbers, on all threads.
template <class Body>
void for_rows(const Tensor& x, const Body& body) {
  const int64_t C = x.shape().back();
  parallel_ranges(x.size() / C, std::max<int64_t>(1, elementwise_grain / 16 / C), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i * C);
  });
}

// The softmax of a row; sums are taken in double.
template <class T>
struct Row {
  Computing<T> largest;
  double sum = 0;
  Row(const T* x, int64_t C) : largest(to_computing(x[0])) {
    for (int64_t c = 1; c < C; ++c) largest = std::max(largest, to_computing(x[c]));
    for (int64_t c = 0; c < C; ++c) sum += exponential(x[c]);
  }
  Computing<T> exponential(T x) const { return std::exp(to_computing(x) - largest); }
  double probability(T x) const { return exponential(x) / sum; }
};

void forward_cpu(const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back();
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    T* y = call.y.mutable_data<T>();
    for_rows(call.x, [=](int64_t first) {
      const Row<T> row(x + first, C);
      for (int64_t i = first; i < first + C; ++i) {
        y[i] = from_computing<T>(static_cast<Computing<T>>(row.probability(x[i])));
      }
    });
  });
}

void backward_cpu(const SoftmaxBackward& call) {
  const int64_t C = call.x.shape().back();
  for_float_type(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *dy = call.dy.data<T>();
    T* dx = call.dx.mutable_data<T>();
    for_rows(call.x, [=](int64_t first) {
      const Row<T> row(x + first, C);
      double mean = 0;  // of dy, weighted with the probabilities
      for (int64_t i = first; i < first + C; ++i) mean += row.probability(x[i]) * to_computing(dy[i]);
      for (int64_t i = first; i < first + C; ++i) {
        const double result = row.probability(x[i]) * (to_computing(dy[i]) - mean);
        dx[i] = from_computing<T>(static_cast<Computing<T>>(result));
      }
    });
  });
}

REGISTER_KERNEL(softmax_forward, cpu, "simple", {.run = forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(softmax_backward, cpu, "simple", {.run = backward_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
