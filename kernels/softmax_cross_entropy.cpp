#include "kernels/softmax_cross_entropy.h"

#include <cmath>

#include "engine/check.h"
#include "kernels/cpu.h"

namespace hs {
namespace {

void check_arguments(const char* op, const Tensor& logits, const Tensor& labels) {
  check(logits.shape().rank() == 2 && labels.shape() == Shape{logits.shape()[0]} && labels.dtype() == DType::i32,
        "{}: logits are {} and labels {} {}, expected (N, classes) and i32 (N)", op, logits.shape().to_string(),
        name(labels.dtype()), labels.shape().to_string());
}

}  // namespace

Tensor softmax_cross_entropy(const Tensor& logits, const Tensor& labels) {
  const Op op("softmax_cross_entropy");
  check_arguments("softmax_cross_entropy", logits, labels);
  check(logits.size() > 0, "softmax_cross_entropy: the batch {} is empty", logits.shape().to_string());
  Tensor loss = Tensor::empty({}, logits.dtype() == DType::f64 ? DType::f64 : DType::f32, logits.device());
  Tensor probabilities = logits.empty_like();
  softmax_cross_entropy_forward(logits, labels, loss, probabilities);
  return record("softmax_cross_entropy", loss, {logits},
                [probabilities = probabilities.saved(), labels = labels.saved()](const Tensor& dloss) -> Gradients {
                  Tensor dlogits = probabilities.empty_like();
                  softmax_cross_entropy_backward(probabilities, labels, dloss, dlogits);
                  return {dlogits};
                });
}

int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  const Op op("count_correct");
  check_arguments("count_correct", logits, labels);
  Tensor count = Tensor::empty({}, DType::i32, logits.device());
  argmax_matches(logits, labels, count);
  return static_cast<int64_t>(count.item());
}

namespace {

// Rows are few and short (a batch of 64 has 640 logits), so one thread does them all, adding the losses in order.
void forward_cpu(const Tensor& logits, const Tensor& labels, Tensor& loss, Tensor& probabilities) {
  const int64_t N = logits.shape()[0], classes = logits.shape()[1];
  const int32_t* label = labels.data<int32_t>();
  for_float_type(logits.dtype(), [&]<class T>() {
    using Real = Computing<T>;
    const T* z = logits.data<T>();
    T* p = probabilities.mutable_data<T>();
    double total = 0;
    for (int64_t n = 0; n < N; ++n, z += classes, p += classes) {
      if (label[n] < 0 || label[n] >= classes) {
        fail(ExitCode::bad_input, "label {} of sample {} in the batch is not in 0 to {}", label[n], n, classes - 1);
      }
      Real largest = to_computing(z[0]);
      for (int64_t j = 1; j < classes; ++j) largest = std::max(largest, to_computing(z[j]));
      const auto exponential = [=](int64_t j) { return std::exp(to_computing(z[j]) - largest); };
      Real sum = 0;
      for (int64_t j = 0; j < classes; ++j) {
        const Real term = exponential(j);
        if constexpr (!stores_16_bits<T>) p[j] = term;
        sum += term;
      }
      for (int64_t j = 0; j < classes; ++j) {  // 16 bits cannot hold a term until then: it would be rounded twice
        if constexpr (stores_16_bits<T>) {
          p[j] = from_computing<T>(exponential(j) / sum);
        } else {
          p[j] /= sum;
        }
      }
      total += static_cast<double>(std::log(sum)) - static_cast<double>(to_computing(z[label[n]]) - largest);
    }
    *loss.mutable_data<Real>() = static_cast<Real>(total / static_cast<double>(N));
  });
}

void backward_cpu(const Tensor& probabilities, const Tensor& labels, const Tensor& dloss, Tensor& dlogits) {
  const int64_t N = probabilities.shape()[0], classes = probabilities.shape()[1];
  const int32_t* label = labels.data<int32_t>();
  for_float_type(probabilities.dtype(), [&]<class T>() {
    const T* p = probabilities.data<T>();
    T* dz = dlogits.mutable_data<T>();
    const Computing<T> factor = *dloss.data<Computing<T>>() / static_cast<Computing<T>>(N);
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t j = 0; j < classes; ++j) {
        const Computing<T> target = j == label[n] ? 1 : 0;
        dz[n * classes + j] = from_computing<T>((to_computing(p[n * classes + j]) - target) * factor);
      }
    }
  });
}

void argmax_matches_cpu(const Tensor& logits, const Tensor& labels, Tensor& count) {
  const int64_t N = logits.shape()[0], classes = logits.shape()[1];
  const int32_t* label = labels.data<int32_t>();
  for_float_type(logits.dtype(), [&]<class T>() {
    const T* z = logits.data<T>();
    int32_t correct = 0;
    for (int64_t n = 0; n < N; ++n, z += classes) {
      int64_t best = 0;
      bool has_nan = false;
      for (int64_t j = 0; j < classes; ++j) {
        const Computing<T> value = to_computing(z[j]);
        has_nan = has_nan || value != value;
        if (value > to_computing(z[best])) best = j;
      }
      correct += !has_nan && best == label[n];
    }
    *count.mutable_data<int32_t>() = correct;
  });
}

REGISTER_KERNEL(softmax_cross_entropy_forward, cpu, "simple",
                {.run = forward_cpu,
                 .supported = [](const Tensor& z, const Tensor&, Tensor&, Tensor&) { return is_float(z); }});
REGISTER_KERNEL(softmax_cross_entropy_backward, cpu, "simple",
                {.run = backward_cpu,
                 .supported = [](const Tensor& p, const Tensor&, const Tensor&, Tensor&) { return is_float(p); }});
REGISTER_KERNEL(argmax_matches, cpu, "simple",
                {.run = argmax_matches_cpu,
                 .supported = [](const Tensor& z, const Tensor&, Tensor&) { return is_float(z); }});

}  // namespace
}  // namespace hs
