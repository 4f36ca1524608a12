#include <fmt/format.h>

#include <cmath>

#include "kernels/cast/cast.h"
#include "kernels/examples/register.h"
#include "kernels/layer_norm/layer_norm.h"

namespace hs::examples::layer_norm_rows {

Numbers naive_layer_norm(const std::vector<Numbers>& in) {
  Numbers y = in[0];
  const size_t C = in[1].size();
  const auto length = static_cast<double>(C);
  for (size_t first = 0; first < y.size(); first += C) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < C; ++c) mean += y[first + c] / length;
    for (size_t c = 0; c < C; ++c) variance += std::pow(y[first + c] - mean, 2) / length;
    for (size_t c = 0; c < C; ++c) {
      const double n = (y[first + c] - mean) / std::sqrt(variance + 1e-5);
      y[first + c] = n * in[1][c] + (in[2].empty() ? 0 : in[2][c]);
    }
  }
  return y;
}

constexpr double u32 = tolerance::u32;

OpCase row_of(const Shape& shape) {
  // Sums of a row's numbers, which are about one, in f32: their error is a few u, in each number alike. dscale and
  // dshift add up the rows' errors.
  return {.name = "layer_norm " + shape.to_string(),
          .shapes = {shape, {shape.back()}, {shape.back()}},
          .run = [](const Inputs& in) { return layer_norm(in[0], parameter(in[1]), parameter(in[2])); },
          .forward = {8 * u32, 16 * u32, 0},
          .gradient = {16 * u32, 64 * u32, 0},
          .reference = naive_layer_norm,
          .integers = false,
          .nan = shape.size() > 0,
          .flops = 8 * count(shape),
          .optional = {2}};
}

// Of f32: the result and its gradient are rounded to 16 bits.
OpCase rounded_row_of(DType type, const Shape& shape) {
  OpCase row = row_of(shape);
  row.name = fmt::format("layer_norm to {} {}", name(type), shape.to_string());
  row.run = [type](const Inputs& in) {
    const DType wanted = in[0].dtype() == DType::f32 ? type : in[0].dtype();
    return cast(layer_norm(in[0], parameter(in[1]), parameter(in[2]), 1e-5, wanted), in[0].dtype());
  };
  const double u = tolerance::rounding_to(type).u;
  row.forward = {u + 8 * u32, 16 * u32, 0};
  row.gradient = {2 * u, 8 * u, 0};
  row.half = false;
  return row;
}

const Examples rows([](Table& table) {
  for (const Shape& shape :
       {Shape{3, 5}, Shape{1, 1}, Shape{2, 3, 33}, Shape{0, 4}, Shape{70, 130}, Shape{5, 3, 128}}) {
    table.push_back(row_of(shape));
  }
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{70, 130}, Shape{5, 3, 128}}) {
      table.push_back(rounded_row_of(type, shape));
    }
  }
  for (const char* name : {"layer_norm (3, 5)", "layer_norm (70, 130)"}) add_far_from_0(table, name, 0, 2048 * u32);
});

const Examples drawn([](Draw& draw) { return row_of({draw.size(70), draw.positive(300)}); });

// Of char_gpt.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "layer_norm",
           .shapes = {{batch, 128, 128}, {128}, {128}},
           .slots = {&layer_norm_forward, &layer_norm_backward},
           .leaves = 3}};
});

}  // namespace hs::examples::layer_norm_rows
