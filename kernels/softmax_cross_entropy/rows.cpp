#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace hs::examples::softmax_cross_entropy_rows {

std::vector<int32_t> some_labels(int64_t N, int64_t classes) {
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < N; ++n) labels.push_back(static_cast<int32_t>(n * 7 % classes));
  return labels;
}

OpCase loss_row(const Shape& shape, float smoothing) {
  const auto labels = some_labels(shape[0], shape[1]);
  return {.name = "softmax_cross_entropy " + shape.to_string() + (smoothing > 0 ? " smoothed" : ""),
          .shapes = {shape},
          .run = {[=](const Inputs& in) {
            const Shape& size = in[0].shape();  // another one where it is timed
            const Tensor label = Tensor::from(some_labels(size[0], size[1]), {size[0]});
            return softmax_cross_entropy(in[0], label.to(in[0].device()), {}, smoothing);
          }},
          .forward = tolerance::cross_entropy,
          .gradient = tolerance::cross_entropy_gradient,
          .reference = {[=](const std::vector<Numbers>& in) {
            return naive_cross_entropy(in[0], labels, shape[1], smoothing);
          }},
          .integers = false,
          .flops = 4 * count(shape)};
}

OpCase gradient_row(const Shape& shape, float smoothing) {
  const auto labels = some_labels(shape[0], shape[1]);
  const Tensor label_tensor = Tensor::from(labels, {shape[0]});
  return {.name = "gradient of softmax_cross_entropy, known in advance " + shape.to_string() +
                  (smoothing > 0 ? " smoothed" : ""),
          .shapes = {shape},
          .run = {[=](const Inputs& in) {
            const Tensor dloss = on_test_device(Tensor::from(std::vector<float>{0.5f}, {}));
            const Tensor label = label_tensor.to(in[0].device());
            Tensor loss = dloss.empty_like(), dlogits = in[0].empty_like();
            softmax_cross_entropy_with_gradient({in[0], label, dloss, loss, dlogits, smoothing});
            return dlogits;
          }},
          .forward = tolerance::cross_entropy_gradient,
          .reference = {[=](const std::vector<Numbers>& in) {
            Numbers dz;
            for (size_t n = 0; n < labels.size(); ++n) {
              const auto row = in[0].begin() + static_cast<int64_t>(n) * shape[1];
              double sum = 0;
              for (int64_t j = 0; j < shape[1]; ++j) sum += std::exp(row[j]);
              for (int64_t j = 0; j < shape[1]; ++j) {
                const double others = smoothing / static_cast<double>(shape[1]);
                const double target = others + (j == labels[n] ? 1 - smoothing : 0);
                dz.push_back((std::exp(row[j]) / sum - target) / 2 / static_cast<double>(shape[0]));
              }
            }
            return dz;
          }},
          .f64 = false,
          .differentiable = false,
          .integers = false};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : {Shape{5, 10}, Shape{1, 2}, Shape{3, 1}, Shape{64, 10}, Shape{7, 131}, Shape{301, 65}}) {
    for (const float smoothing : {0.0f, 0.1f}) {
      table.push_back(loss_row(shape, smoothing));
      table.push_back(gradient_row(shape, smoothing));
    }
  }
  // Logits of 16 times the inputs: they differ from the label's by up to 32, so probabilities are near 1 or far below
  // the roundoff of every type. 16 is a power of two, so everything except the loss itself is exact. The gradient of an
  // input is 16 times that of its logit, and so is its absolute tolerance.
  for (const Shape& shape : {Shape{40, 2}, Shape{24, 10}}) {
    const auto labels = some_labels(shape[0], shape[1]);
    const Tensor label_tensor = Tensor::from(labels, {shape[0]});
    const Tolerance& logit = tolerance::cross_entropy_gradient;
    table.push_back({.name = "softmax_cross_entropy, logits up to 16 " + shape.to_string(),
                     .shapes = {shape},
                     .run = {[=](const Inputs& in) {
                       return softmax_cross_entropy(scale(in[0], 16), label_tensor.to(in[0].device()));
                     }},
                     .forward = tolerance::cross_entropy,
                     .gradient = {logit.relative, 16 * logit.absolute, 0},
                     .reference = {[=](const std::vector<Numbers>& in) {
                       Numbers logits = in[0];
                       for (double& z : logits) z *= 16;
                       return naive_cross_entropy(logits, labels, shape[1]);
                     }},
                     .integers = false});
  }
  for (const char* name : {"softmax_cross_entropy (7, 131) smoothed",
                           "gradient of softmax_cross_entropy, known in advance (7, 131) smoothed"}) {
    add_far_from_0(table, name);
  }
});

Shape some_logits(Draw& draw) { return {draw.positive(100), draw.positive(140)}; }
const Examples drawn_loss([](Draw& draw) { return loss_row(some_logits(draw), draw.pick({0.0f, 0.1f})); });
const Examples drawn_gradient([](Draw& draw) { return gradient_row(some_logits(draw), draw.pick({0.0f, 0.1f})); });

// As mnist_cnn has it.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "softmax_cross_entropy",
           .shapes = {{batch, 10}},
           .slots = {&softmax_cross_entropy_forward, &softmax_cross_entropy_backward},
           .leaves = 1}};
});

}  // namespace hs::examples::softmax_cross_entropy_rows
