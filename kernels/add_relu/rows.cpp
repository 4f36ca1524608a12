#include <algorithm>

#include "kernels/add_relu/add_relu.h"
#include "kernels/examples/register.h"

namespace hs::examples::add_relu_rows {

OpCase row_of(const Shape& shape) {
  return {.name = "add_relu " + shape.to_string(),
          .shapes = {shape, shape},
          .run = [](const Inputs& in) { return add_relu(in[0], in[1]); },
          .forward = tolerance::two_roundings,
          .reference = elementwise([](double a, double b) { return std::max(a + b, 0.0); }),
          .flops = 2 * count(shape),
          .same_on_devices = true,
          .nan_in_place = 2};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : elementwise_shapes) table.push_back(row_of(shape));
});

const Examples drawn([](Draw& draw) { return row_of(draw.shape(40001)); });

// The first residual block of resnet8.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "add_relu",
           .shapes = {{batch, 32, 32, 16}, {batch, 32, 32, 16}},
           .slots = {&add_relu_forward},
           .leaves = 2}};
});

}  // namespace hs::examples::add_relu_rows
