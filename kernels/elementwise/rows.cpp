#include "kernels/elementwise/elementwise.h"

#include <fmt/format.h>

#include "kernels/cast/cast.h"
#include "kernels/examples/register.h"
#include "kernels/gemm/gemm.h"

namespace hs::examples::elementwise_rows {

OpCase add_row(const Shape& shape) {
  return {.name = "add " + shape.to_string(),
          .shapes = {shape, shape},
          .run = [](const Inputs& in) { return add(in[0], in[1]); },
          .forward = tolerance::two_roundings,  // the f64 reference is not rounded to f32
          .reference = elementwise([](double a, double b) { return a + b; }),
          .flops = count(shape),
          .same_on_devices = true,
          .nan_in_place = 2};
}

// A sum of f32 and 16 bits.
OpCase add_narrow_row(DType type, const Shape& shape) {
  OpCase row = add_row(shape);
  row.name = fmt::format("add {} {}", name(type), shape.to_string());
  row.run = [type](const Inputs& in) {
    return in[0].dtype() == DType::f32 ? add(in[0], cast(in[1], type)) : add(in[0], in[1]);
  };
  const double u = tolerance::rounding_to(type).u;
  row.forward = row.gradient = {u, u, 0};
  row.half = false;
  return row;
}

OpCase sub_row(const Shape& shape) {
  OpCase row = add_row(shape);
  row.name = "sub " + shape.to_string();
  row.run = [](const Inputs& in) { return sub(in[0], in[1]); };
  row.reference = elementwise([](double a, double b) { return a - b; });
  return row;
}

OpCase mul_row(const Shape& shape) {
  OpCase row = add_row(shape);
  row.name = "mul " + shape.to_string();
  row.run = [](const Inputs& in) { return mul(in[0], in[1]); };
  row.gradient = tolerance::two_roundings;
  row.reference = elementwise([](double a, double b) { return a * b; });
  return row;
}

OpCase scale_row(const Shape& shape) {
  const bool is_rounded = shape == Shape{7};  // the factor
  const double factor = is_rounded ? 1.0 / 3 : 0.5;
  const Tolerance allowed = is_rounded ? tolerance::two_roundings : tolerance::exact;
  return {.name = (is_rounded ? "scale by 1/3 " : "scale by 0.5 ") + shape.to_string(),
          .shapes = {shape},
          .run = [=](const Inputs& in) { return scale(in[0], factor); },
          .forward = allowed,
          .gradient = allowed,
          .reference = elementwise([=](double x) { return factor * x; }),
          .integers = !is_rounded,
          .flops = count(shape),
          .same_on_devices = true};
}

OpCase reshape_row(const Shape& shape) {
  return {.name = "reshape " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& in) { return in[0].reshape({in[0].size()}); },
          .reference = elementwise([](double x) { return x; })};
}

OpCase bias_add_row(const Shape& shape) {
  return {.name = "bias_add " + shape.to_string(),
          .shapes = {shape, {shape.back()}},
          .run = [](const Inputs& in) { return bias_add(in[0], in[1]); },
          .forward = tolerance::two_roundings,
          .gradient = tolerance::sum,
          .reference = {[](const std::vector<Numbers>& in) {
            Numbers y = in[0];
            for (size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % in[1].size()];
            return y;
          }},
          .nan = shape.size() > 0,
          .terms = {1, 1, 1},
          .flops = count(shape)};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : elementwise_shapes) {
    for (const auto row_of : {add_row, sub_row, mul_row, scale_row, reshape_row}) table.push_back(row_of(shape));
    for (const DType type : {DType::f16, DType::bf16}) table.push_back(add_narrow_row(type, shape));
  }
  table.push_back(scale_row({7}));
  for (const Shape& shape : {Shape{4, 7}, Shape{2, 3, 4, 5}, Shape{1, 1}, Shape{0, 3}, Shape{1025, 17}}) {
    table.push_back(bias_add_row(shape));
  }
});

const Examples drawn_add([](Draw& draw) { return add_row(draw.shape(40001)); });
const Examples drawn_sub([](Draw& draw) { return sub_row(draw.shape(40001)); });
const Examples drawn_mul([](Draw& draw) { return mul_row(draw.shape(40001)); });
const Examples drawn_scale([](Draw& draw) { return scale_row(draw.shape(40001)); });
const Examples drawn_bias_add([](Draw& draw) { return bias_add_row({draw.size(1025), draw.positive(40)}); });

// On the largest tensors of mnist_cnn.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  const Shape wide{batch, 26, 26, 32};
  return {{.op = "add", .shapes = {wide, wide}, .slots = {&add_forward}},
          {.op = "bias_add", .shapes = {wide, {32}}, .slots = {&bias_add_forward, &column_sum}, .leaves = 2}};
});

}  // namespace hs::examples::elementwise_rows
