#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/ambient.h"
#include "kernels/batch_norm2d/batch_norm2d.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/register.h"

namespace hs::examples::batch_norm2d_rows {

constexpr double eps = 1e-3;

double running_mean(size_t c) { return 0.25 * static_cast<double>(c % 5) - 0.5; }
double running_variance(size_t c) { return 0.5 + static_cast<double>(c % 3); }

Tensor running_values(const Tensor& x, double (*value)(size_t c)) {
  Numbers values(static_cast<size_t>(x.shape().back()));
  for (size_t c = 0; c < values.size(); ++c) values[c] = value(c);
  if (x.dtype() == DType::f64) return Tensor::from(values, {x.shape().back()});
  return Tensor::from(std::vector<float>(values.begin(), values.end()), {x.shape().back()}).to(x.device());
}

struct Way {
  const char* name;
  bool training = true, relu = false;
  bool residual = false;  // the last input
  bool forks = false;     // the result is y + y, so y gets two gradients
};

Tensor normalized(const Inputs& in, const Way& way) {
  const AmbientScope scope;
  const auto [name, training, relu, has_residual, forks] = way;
  ambient().training = training;
  Tensor mean, variance;
  if (!training) mean = running_values(in[0], running_mean), variance = running_values(in[0], running_variance);
  const Tensor y = batch_norm2d(in[0], parameter(in[1]), parameter(in[2]), mean, variance, {.eps = eps, .relu = relu},
                                has_residual ? in[3] : Tensor());
  return forks ? add(y, y) : y;
}

Numbers naive(const std::vector<Numbers>& in, const Way& way) {
  const bool training = way.training;
  const size_t C = in[1].size(), M = in[0].size() / C;
  Numbers y = in[0];
  for (size_t c = 0; c < C; ++c) {
    double mean = training ? 0 : running_mean(c), variance = training ? 0 : running_variance(c);
    for (size_t row = 0; training && row < M; ++row) mean += y[row * C + c] / static_cast<double>(M);
    for (size_t row = 0; training && row < M; ++row) {
      variance += std::pow(y[row * C + c] - mean, 2) / static_cast<double>(M);
    }
    for (size_t i = c; i < y.size(); i += C) {
      y[i] = (y[i] - mean) / std::sqrt(variance + eps) * in[1][c] + in[2][c];
      if (way.residual) y[i] += in[3][i];
      if (way.relu) y[i] = std::max(y[i], 0.0);
      if (way.forks) y[i] *= 2;
    }
  }
  return y;
}

OpCase row_of(const Shape& shape, const Way& way) {
  // x - mean, and dy less what the statistics pass back, cancel: what either is off by counts times scale / deviation,
  // about 2. With the residual four numbers of up to 2 or 4 are each rounded. dscale and dshift are f32 sums of M
  // values. A few values of a channel may be close: 1 / deviation is up to 1 / sqrt(eps) = 32, times what a mean of up
  // to 1, or of Fill::spaced 5, is off when it is stored; dx has it twice, times dy and 1 / deviation once more.
  const int64_t M = shape.size() / shape.back();
  const double u = tolerance::u32, both = way.forks ? 2 : 1;
  const double off = way.training && M < 8 ? 32 * (way.relu ? 4 : 0.5) * u : 0;
  const double sums = 32 * u + 2 * 32 * 2 * off + tolerance::walk(M, tolerance::rms);
  std::vector<Shape> shapes = {shape, {shape.back()}, {shape.back()}};
  if (way.residual) shapes.push_back(shape);
  return {.name = fmt::format("batch_norm2d{} {}", way.name, shape.to_string()),
          .shapes = shapes,
          .run = [way](const Inputs& in) { return normalized(in, way); },
          .forward = {4 * u, both * (20 * u + off), 0},
          .gradient = {4 * u, both * sums, 0},
          .reference = [way](const std::vector<Numbers>& in) { return naive(in, way); },
          .fill = way.relu ? Fill::spaced : Fill::uniform,
          // With a residual 16 bits are rounded twice: tests/kernels/batch_norm2d.cpp wants the bits of add_relu.
          .half = !way.residual,
          .integers = false,
          .kinked = way.relu,
          .nan = shape.size() > 0,
          .flops = 8 * count(shape)};
}

constexpr Way training{""}, evaluation{" in evaluation", false}, with_relu{" with ReLU", true, true},
    with_relu_in_evaluation{" with ReLU in evaluation", false, true}, residual{" with residual", true, true, true},
    residual_in_evaluation{" with residual in evaluation", false, true, true},
    forks{" that forks", true, true, false, true}, residual_forks{" with residual that forks", true, true, true, true};

const Examples rows([](Table& table) {
  struct Sizes {
    Shape x;
    Way way;
  };
  for (const auto& [shape, way] : {Sizes{{2, 3, 4, 3}, training},
                                   {{2, 1}, training},  // the fewest values
                                   {{7, 16}, training},
                                   {{2, 3, 5, 32}, training},
                                   {{3, 4, 48}, training},
                                   {{2, 20, 26, 16}, training},  // several blocks of rows
                                   {{5, 103, 33}, training},     // and of columns
                                   {{3, 9, 11, 64}, training},
                                   {{2, 1040}, training},
                                   {{3, 5, 4, 3}, evaluation},
                                   {{1, 2, 2, 64}, evaluation},
                                   {{1, 16}, evaluation},
                                   {{0, 4, 4, 16}, evaluation},
                                   {{2, 20, 26, 16}, evaluation},
                                   {{2, 2, 2, 3}, with_relu},
                                   {{2, 2, 3, 16}, with_relu},
                                   {{2, 2, 3, 16}, with_relu_in_evaluation},
                                   {{2, 2, 2, 3}, residual},
                                   {{2, 2, 3, 16}, residual},
                                   {{2, 2, 3, 16}, residual_in_evaluation},
                                   {{2, 2, 2, 3}, forks},
                                   {{2, 3, 5, 16}, forks},
                                   {{2, 2, 2, 3}, residual_forks},
                                   {{2, 20, 13, 16}, residual_forks}}) {
    table.push_back(row_of(shape, way));
  }
  // sums over rows, of the gradients, add up by how much a mean that is stored in f32 is off.
  constexpr double u = tolerance::u32;
  add_far_from_0(table, "batch_norm2d (2, 3, 4, 3)", 256 * u, 2048 * u);
  add_far_from_0(table, "batch_norm2d (2, 20, 26, 16)", 256 * u, 16384 * u);
});

const Examples drawn([](Draw& draw) {
  const Way way = draw.pick({training, training, evaluation, with_relu, with_relu_in_evaluation, residual,
                             residual_in_evaluation, forks, residual_forks});
  return row_of({(way.training ? 2 : 0) + draw.size(20), draw.positive(20), draw.positive(140)}, way);
});

// On the largest tensors of mnist_cnn.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "batch_norm2d",
           .shapes = {{batch, 26, 26, 32}, {32}, {32}},
           .slots = {&batch_norm2d_statistics, &batch_norm2d_forward, &batch_norm2d_backward},
           .leaves = 3}};
});

}  // namespace hs::examples::batch_norm2d_rows
