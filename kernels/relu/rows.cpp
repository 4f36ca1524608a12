#include <algorithm>

#include "kernels/examples/register.h"
#include "kernels/relu/relu.h"

namespace hs::examples::relu_rows {

OpCase row_of(const Shape& shape) {
  return {.name = "relu " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& in) { return relu(in[0]); },
          .reference = elementwise([](double x) { return std::max(x, 0.0); }),
          .fill = Fill::spaced,
          .flops = count(shape),
          .same_on_devices = true,
          .nan_in_place = 1};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : elementwise_shapes) table.push_back(row_of(shape));
});

const Examples drawn([](Draw& draw) { return row_of(draw.shape(40001)); });

// On the largest tensors of mnist_cnn.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "relu", .shapes = {{batch, 26, 26, 32}}, .slots = {&relu_forward, &relu_backward}, .leaves = 1}};
});

}  // namespace hs::examples::relu_rows
