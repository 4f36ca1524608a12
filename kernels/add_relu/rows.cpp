#include <algorithm>

#include "kernels/add_relu/add_relu.h"
#include "kernels/examples/register.h"

namespace hs::examples::add_relu_rows {

const Examples rows([](Table& table) {
  for (const Shape& shape : elementwise_shapes) {
    table.push_back({.name = "add_relu " + shape.to_string(),
                     .shapes = {shape, shape},
                     .run = [](const Inputs& in) { return add_relu(in[0], in[1]); },
                     .forward = tolerance::two_roundings,
                     .reference = elementwise([](double a, double b) { return std::max(a + b, 0.0); }),
                     .flops = 2 * count(shape),
                     .same_on_devices = true});
  }
});

}  // namespace hs::examples::add_relu_rows
