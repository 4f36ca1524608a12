// Rows of the ops that work element by element, and of sums.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/random.h"
#include "engine/slots.h"
#include "kernels/add_relu/add_relu.h"
#include "kernels/cast/cast.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "tests/op_table/groups.h"

namespace hs::test {

void add_elementwise(Table& table) {
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{0, 4}, Shape{17, 33, 2}, Shape{40001}}) {
    const std::string at = shape.to_string();
    table.push_back({.name = "add " + at,
                     .shapes = {shape, shape},
                     .run = [](const Inputs& in) { return add(in[0], in[1]); },
                     .reference = elementwise([](double a, double b) { return a + b; }),
                     .flops = count(shape),
                     .same_on_devices = true});
    table.back().forward = tolerance::two_roundings;  // the f64 reference is not rounded to f32
    table.push_back({.name = "add_relu " + at,
                     .shapes = {shape, shape},
                     .run = [](const Inputs& in) { return add_relu(in[0], in[1]); },
                     .forward = tolerance::two_roundings,
                     .reference = elementwise([](double a, double b) { return std::max(a + b, 0.0); }),
                     .flops = 2 * count(shape),
                     .same_on_devices = true});
    table.push_back({.name = "mul " + at,
                     .shapes = {shape, shape},
                     .run = [](const Inputs& in) { return mul(in[0], in[1]); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::two_roundings,
                     .reference = elementwise([](double a, double b) { return a * b; }),
                     .flops = count(shape),
                     .same_on_devices = true});
    table.push_back({.name = "scale by 0.5 " + at,
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return scale(in[0], 0.5); },
                     .reference = elementwise([](double x) { return 0.5 * x; }),
                     .flops = count(shape),
                     .same_on_devices = true});
    table.push_back({.name = "relu " + at,
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return relu(in[0]); },
                     .reference = elementwise([](double x) { return std::max(x, 0.0); }),
                     .fill = Fill::spaced,
                     .flops = count(shape),
                     .same_on_devices = true});
    table.push_back({.name = "reshape " + at,
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return in[0].reshape({in[0].size()}); },
                     .reference = elementwise([](double x) { return x; })});
    table.push_back({.name = "accumulate " + at,
                     .shapes = {shape, shape},
                     .run =
                         [](const Inputs& in) {
                           Tensor y = in[0].clone();
                           accumulate({in[1], y});
                           return y;
                         },
                     .forward = tolerance::two_roundings,
                     .reference = elementwise([](double a, double b) { return a + b; }),
                     .differentiable = false,
                     .flops = count(shape),
                     .same_on_devices = true});
  }
  table.push_back({.name = "scale by 1/3 (7)",
                   .shapes = {{7}},
                   .run = [](const Inputs& in) { return scale(in[0], 1.0 / 3); },
                   .forward = tolerance::two_roundings,
                   .gradient = tolerance::two_roundings,
                   .reference = elementwise([](double x) { return x / 3; }),
                   .integers = false,
                   .flops = 7,
                   .same_on_devices = true});
  table.push_back({.name = "cast to f16 and back (5, 7)",
                   .shapes = {{5, 7}},
                   .run = [](const Inputs& in) { return cast(cast(in[0], DType::f16), in[0].dtype()); },
                   .reference = elementwise([](double x) { return to_float(to_half(static_cast<float>(x))); }),
                   .half = false,
                   .differentiable = false,
                   .same_on_devices = true});
  table.push_back({.name = "cast to bf16 and back (5, 7)",
                   .shapes = {{5, 7}},
                   .run = [](const Inputs& in) { return cast(cast(in[0], DType::bf16), in[0].dtype()); },
                   .reference = elementwise([](double x) { return to_float(to_bfloat16(static_cast<float>(x))); }),
                   .half = false,
                   .differentiable = false,
                   .same_on_devices = true});
  for (const double rate : {0.5, 0.25, 0.1}) {
    const RandomStream stream{42, RandomPurpose::dropout, 3, 7, 0};
    table.push_back({.name = fmt::format("dropout {} (9, 123)", rate),
                     .shapes = {{9, 123}},
                     .run = [=](const Inputs& in) { return dropout(in[0], rate, stream); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::two_roundings,
                     .reference =
                         [=](const std::vector<Numbers>& in) {
                           Numbers y = in[0];
                           const double rounded = std::round(rate * 65536) / 65536;
                           for (size_t i = 0; i < y.size(); ++i) {
                             const uint32_t word = random_bits(stream, i / 2);
                             const double draw = (i % 2 == 0 ? word % 65536 : word / 65536) / 65536.0;
                             y[i] = draw >= rounded ? y[i] / (1 - rounded) : 0;
                           }
                           return y;
                         },
                     .integers = rate == 0.5,
                     .nan = false,
                     .flops = 9 * 123,
                     .same_on_devices = true});
  }
}

void add_reductions(Table& table) {
  for (const Shape& shape : {Shape{1}, Shape{3}, Shape{1025}, Shape{7, 10007}}) {
    const auto total = [](const std::vector<Numbers>& in) {
      double sum = 0;
      for (const double x : in[0]) sum += x;
      return Numbers{sum};
    };
    table.push_back({.name = "sum " + shape.to_string(),
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return sum(in[0]); },
                     .forward = tolerance::sum,
                     .reference = total,
                     .terms = {1, 1},
                     .flops = count(shape)});
    table.push_back(
        {.name = "mean " + shape.to_string(),
         .shapes = {shape},
         .run = [](const Inputs& in) { return mean(in[0]); },
         .forward = tolerance::sum,
         .gradient = tolerance::two_roundings,
         .reference =
             [=](const std::vector<Numbers>& in) { return Numbers{total(in)[0] / static_cast<double>(in[0].size())}; },
         .integers = false,
         .terms = {1, 1},
         .flops = count(shape)});
  }
  for (const Shape& shape : {Shape{4, 7}, Shape{2, 3, 4, 5}, Shape{1, 1}, Shape{0, 3}, Shape{1025, 17}}) {
    const int64_t C = shape.back();
    table.push_back({.name = "bias_add " + shape.to_string(),
                     .shapes = {shape, {C}},
                     .run = [](const Inputs& in) { return bias_add(in[0], in[1]); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::sum,
                     .reference =
                         [](const std::vector<Numbers>& in) {
                           Numbers y = in[0];
                           for (size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % in[1].size()];
                           return y;
                         },
                     .nan = shape.size() > 0,
                     .terms = {1, 1, 1},
                     .flops = count(shape)});
  }
}

}  // namespace hs::test
