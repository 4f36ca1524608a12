#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

#include <cmath>

#include "engine/check.h"
#include "kernels/argmax/argmax.h"
#include "kernels/cpu/elements.h"

namespace hs {
namespace {

void check_arguments(const char* op, const Tensor& logits, const Tensor& labels) {
  check(logits.shape().rank() == 2 && labels.shape() == Shape{logits.shape()[0]} && labels.dtype() == DType::i32,
        "{}: logits are {} and labels {} {}, expected (N, classes) and i32 (N)", op, logits.shape(),
        name(labels.dtype()), labels.shape());
}

// Computes the loss and its gradient at once, which on the CPU would gain nothing. Returns false, and has done nothing,
// unless one kernel does both.
bool compute_both(const Tensor& logits, const Tensor& labels, const Tensor& dloss, float smoothing, Tensor& loss) {
  if (!dloss.defined() || !logits.requires_grad() || !ambient().recording || !ambient().fuse ||
      softmax_cross_entropy_forward.is_forced() || softmax_cross_entropy_backward.is_forced() ||
      !softmax_cross_entropy_with_gradient.variant_for({logits, labels, dloss, no_tensor(), no_tensor()})) {
    return false;
  }
  Tensor dlogits = logits.empty_like();
  softmax_cross_entropy_with_gradient({logits, labels, dloss, loss, dlogits, smoothing});
  loss =
      record("softmax_cross_entropy", loss, {logits},
             [dlogits = dlogits.saved(), dloss = dloss.saved()](const Tensor& dy) -> Gradients {
               check(dy.raw_data() == dloss.raw_data(), "got another gradient than the one announced; pass the same");
               return {dlogits};
             });
  return true;
}

}  // namespace

Tensor softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& dloss, float smoothing) {
  const Op op("softmax_cross_entropy");
  check_arguments("softmax_cross_entropy", logits, labels);
  check(logits.size() > 0, "softmax_cross_entropy: the batch {} is empty", logits.shape());
  check(smoothing >= 0 && smoothing <= 1, "softmax_cross_entropy: smoothing is {}, expected 0 to 1", smoothing);
  Tensor loss = Tensor::empty({}, logits.dtype() == DType::f64 ? DType::f64 : DType::f32, logits.device());
  if (logits.device() != Device::cpu && compute_both(logits, labels, dloss, smoothing, loss)) return loss;
  softmax_cross_entropy_forward({logits, labels, loss, smoothing});
  return record("softmax_cross_entropy", loss, {logits},
                [logits = logits.saved(), labels = labels.saved(), smoothing](const Tensor& dy) -> Gradients {
                  Tensor dlogits = logits.empty_like();
                  softmax_cross_entropy_backward({logits, labels, dy, dlogits, smoothing});
                  return {dlogits};
                });
}

int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  const Op op("count_correct");
  check_arguments("count_correct", logits, labels);
  const std::vector<int32_t> best = argmax(logits).to_vector<int32_t>(), label = labels.to_vector<int32_t>();
  int64_t correct = 0;
  for (size_t n = 0; n < best.size(); ++n) correct += best[n] >= 0 && best[n] == label[n];
  return correct;
}

namespace {

// The terms of the softmax of a row of logits: softmax(z)_j = exp(z_j - largest) / sum.
template <class T>
struct RowSum {
  Computing<T> largest, sum = 0;
  RowSum(const T* z, int64_t classes) : largest(to_computing(z[0])) {
    for (int64_t j = 1; j < classes; ++j) largest = std::max(largest, to_computing(z[j]));
    for (int64_t j = 0; j < classes; ++j) sum += exponential(z[j]);
  }
  Computing<T> exponential(T z) const { return std::exp(to_computing(z) - largest); }
};

// Rows are few and short (a batch of 64 has 640 logits), so one thread does them all, adding the losses in order.
void forward_cpu(const SoftmaxCrossEntropyForward& call) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  const int32_t* label = call.labels.data<int32_t>();
  for_float_type(call.logits.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const T* z = call.logits.data<T>();
    const TargetRow<Real> q(call.smoothing, classes);
    double total = 0;
    for (int64_t n = 0; n < N; ++n, z += classes) {
      if (label[n] < 0 || label[n] >= classes) {
        fail(ExitCode::bad_input, "label {} of sample {} in the batch is not in 0 to {}", label[n], n, classes - 1);
      }
      const RowSum<T> row(z, classes);
      double loss = static_cast<double>(std::log(row.sum));
      for (int64_t j = 0; j < classes; ++j) {
        const Real target = j == label[n] ? q.label : q.others;
        if (target != 0) loss -= static_cast<double>(target * (to_computing(z[j]) - row.largest));
      }
      total += loss;
    }
    *call.loss.mutable_data<Real>() = static_cast<Real>(total / static_cast<double>(N));
  });
}

void backward_cpu(const SoftmaxCrossEntropyBackward& call) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  const int32_t* label = call.labels.data<int32_t>();
  for_float_type(call.logits.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const T* z = call.logits.data<T>();
    T* dz = call.dlogits.mutable_data<T>();
    const TargetRow<Real> q(call.smoothing, classes);
    const Real factor = *call.dloss.data<Real>() / static_cast<Real>(N);
    for (int64_t n = 0; n < N; ++n, z += classes, dz += classes) {
      const RowSum<T> row(z, classes);
      for (int64_t j = 0; j < classes; ++j) {
        const Real probability = row.exponential(z[j]) / row.sum;
        dz[j] = from_computing<T>((probability - (j == label[n] ? q.label : q.others)) * factor);
      }
    }
  });
}

void both_cpu(const SoftmaxCrossEntropyWithGradient& call) {
  softmax_cross_entropy_forward({call.logits, call.labels, call.loss, call.smoothing});
  softmax_cross_entropy_backward({call.logits, call.labels, call.dloss, call.dlogits, call.smoothing});
}

REGISTER_KERNEL(softmax_cross_entropy_forward, cpu, "simple", {.run = forward_cpu, .supported = takes_floats});
REGISTER_KERNEL(softmax_cross_entropy_backward, cpu, "simple", {.run = backward_cpu, .supported = takes_floats});
REGISTER_KERNEL(softmax_cross_entropy_with_gradient, cpu, "simple", {.run = both_cpu, .supported = takes_floats});

}  // namespace
}  // namespace hs
