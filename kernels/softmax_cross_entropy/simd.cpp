// softmax_cross_entropy on vectors along the rows, in f32, on all threads: variant "simd". For batches with many
// logits, as those of sequences: a batch of digits is done before a second thread has begun.
#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/check.h"
#include "kernels/cpu/elements.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {
namespace {

// softmax(z)_j = exp(z_j - largest) / sum.
struct Row {
  float largest, sum;
  Row(const float* z, int64_t classes) {
    Vec most = broadcast(z[0]), total = {};
    for (int64_t j = 0; j < classes; j += lanes) most = larger(load_first_or(z + j, classes - j, z[0]), most);
    largest = lane_max(most);
    for (int64_t j = 0; j < classes; j += lanes) total += exponentials(z + j, classes - j);
    sum = lane_sum(total);
  }
  // exp(z_j - largest) of the first `count`, and zeros.
  Vec exponentials(const float* z, int64_t count) const { return exp(load_first_or(z, count, -INFINITY) - largest); }
};

double row_loss(const float* z, int64_t classes, int32_t label, float smoothing) {
  const Row row(z, classes);
  const double log_sum = std::log(static_cast<double>(row.sum)), of_label = double{z[label]} - row.largest;
  if (smoothing == 0) return log_sum - of_label;
  Vec all = {};
  for (int64_t j = 0; j < classes; j += lanes)
    all += first_lanes(load_first(z + j, classes - j) - row.largest, classes - j);
  return log_sum - (1 - double{smoothing}) * of_label -
         double{smoothing} * lane_sum(all) / static_cast<double>(classes);
}

// dz may be z.
void row_gradient(const float* z, int64_t classes, int32_t label, float smoothing, float factor, float* dz) {
  const Row row(z, classes);
  const float others = smoothing / static_cast<float>(classes), of_label = std::exp(z[label] - row.largest) / row.sum;
  for (int64_t j = 0; j < classes; j += lanes) {
    store_first(dz + j, (row.exponentials(z + j, classes - j) / row.sum - others) * factor, classes - j);
  }
  dz[label] = (of_label - (1 - smoothing + others)) * factor;
}

void forward(const SoftmaxCrossEntropyForward& call, Tensor& workspace) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  const int32_t* label = call.labels.data<int32_t>();
  const float smoothing = call.smoothing;
  double* partial = reinterpret_cast<double*>(workspace.mutable_data<uint8_t>());
  check_labels(label, N, classes);
  for_f32_or_16_bits(call.logits.dtype(), [&]<class T>() {
    const T* logits = call.logits.data<T>();
    parallel_ranges(N, rows_each, [=](int64_t begin, int64_t end) {
      [[maybe_unused]] float wide[longest_row];
      double total = 0;
      for (int64_t n = begin; n < end; ++n) {
        total += row_loss(as_computing(logits + n * classes, classes, wide), classes, label[n], smoothing);
      }
      partial[begin / rows_each] = total;
    });
  });
  double total = 0;
  for (int64_t piece = 0; piece * rows_each < N; ++piece) total += partial[piece];
  *call.loss.mutable_data<float>() = static_cast<float>(total / static_cast<double>(N));
}

void backward(const SoftmaxCrossEntropyBackward& call) {
  const int64_t N = call.logits.shape()[0], classes = call.logits.shape()[1];
  const int32_t* label = call.labels.data<int32_t>();
  const float smoothing = call.smoothing, factor = *call.dloss.data<float>() / static_cast<float>(N);
  for_f32_or_16_bits(call.logits.dtype(), [&]<class T>() {
    const T* logits = call.logits.data<T>();
    T* dlogits = call.dlogits.mutable_data<T>();
    parallel_ranges(N, rows_each, [=](int64_t begin, int64_t end) {
      [[maybe_unused]] float wide[longest_row];
      for (int64_t n = begin; n < end; ++n) {
        const float* z = as_computing(logits + n * classes, classes, wide);
        T* dz = dlogits + n * classes;
        if constexpr (stores_16_bits<T>) {
          row_gradient(z, classes, label[n], smoothing, factor, wide);
          narrow(wide, dz, classes);
        } else {
          row_gradient(z, classes, label[n], smoothing, factor, dz);
        }
      }
    });
  });
}

}  // namespace
}  // namespace hs::HS_ISA

#else

namespace hs {
namespace {

constexpr int64_t rows_each = 64;      // of a piece: their losses are added in order, then those of the pieces
constexpr int64_t longest_row = 4096;  // rows of 16 bits are widened on the stack
constexpr int64_t fewest_logits = 1 << 14;

bool supports(const Tensor& logits) {
  return logits.size() >= fewest_logits && (is_f32(logits) || (is_16_bit(logits) && logits.shape()[1] <= longest_row));
}

void check_labels(const int32_t* label, int64_t N, int64_t classes) {
  for (int64_t n = 0; n < N; ++n) {
    if (label[n] < 0 || label[n] >= classes) {
      fail(ExitCode::bad_input, "label {} of sample {} in the batch is not in 0 to {}", label[n], n, classes - 1);
    }
  }
}

}  // namespace
}  // namespace hs

#define HS_SOURCE "kernels/softmax_cross_entropy/simd.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

REGISTER_KERNEL(softmax_cross_entropy_forward, cpu, "simd",
                {.run = HS_DISPATCHED(forward),
                 .supported = [](const SoftmaxCrossEntropyForward& call) { return supports(call.logits); },
                 .workspace =
                     [](const SoftmaxCrossEntropyForward& call) {
                       return (call.logits.shape()[0] + rows_each - 1) / rows_each *
                              static_cast<int64_t>(sizeof(double));
                     },
                 .rank = 10});
REGISTER_KERNEL(softmax_cross_entropy_backward, cpu, "simd",
                {.run = HS_DISPATCHED(backward),
                 .supported = [](const SoftmaxCrossEntropyBackward& call) { return supports(call.logits); },
                 .rank = 10});

}  // namespace
}  // namespace hs
#endif
