#include <cmath>
#include <string>

#include "kernels/examples/register.h"
#include "kernels/unary/unary.h"

namespace hs::examples::unary_rows {

constexpr double u32 = tolerance::u32;

struct Function {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*value)(double);
  Tolerance forward, gradient;
  std::vector<int> roundings = {};
  Fill fill = Fill::uniform;
};

// Of exp the absolute part is for a gradient that is added to another and nearly cancels it. From y near 1 what is left
// is off by as much as y, absolutely. In 16 bits y is rounded before it is read, and the tolerance for that follows the
// gradient, so that such y are only in the rows of `wide` values, in f32.
const Function all[] = {
    {"exp", exp, std::exp, {8 * u32, 0, 0}, {10 * u32, 16 * u32, 0}, {1, 2}},
    {"log", log, std::log, {8 * u32, 0, 0}, tolerance::two_roundings, {}, Fill::positive},
    {"tanh", tanh, std::tanh, {8 * u32, 0, 0}, {8 * u32, 16 * u32, 0}, {1, 4}},
    {"sigmoid",
     sigmoid,
     [](double x) { return 1 / (1 + std::exp(-x)); },
     {12 * u32, 0, 0},
     {16 * u32, 16 * u32, 0},
     {1, 3}},
};

OpCase row_of(const Function& f, const Shape& shape, bool wide = false) {
  return {.name = std::string(f.name) + (wide ? " from -5 to 5 " : " ") + shape.to_string(),
          .shapes = {shape},
          .run = [op = f.op](const Inputs& in) { return op(in[0]); },
          .forward = f.forward,
          .gradient = f.gradient,
          .reference = elementwise(f.value),
          .fill = wide ? Fill::spaced : f.fill,
          .half = !wide,
          .integers = false,
          .flops = 12 * count(shape),
          .roundings = f.roundings};
}

const Examples rows([](Table& table) {
  for (const Function& f : all) {
    for (const Shape& shape : elementwise_shapes) table.push_back(row_of(f, shape));
    if (f.op == tanh || f.op == sigmoid) table.push_back(row_of(f, {1001}, true));
  }
});

const Examples drawn([](Draw& draw) { return row_of(draw.pick({all[0], all[1], all[2], all[3]}), draw.shape(40001)); });

}  // namespace hs::examples::unary_rows
