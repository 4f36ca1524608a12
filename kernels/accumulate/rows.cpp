#include "engine/slots.h"
#include "kernels/examples/register.h"

namespace hs::examples::accumulate_rows {

OpCase row_of(const Shape& shape) {
  return {.name = "accumulate " + shape.to_string(),
          .shapes = {shape, shape},
          .run = {[](const Inputs& in) {
            Tensor y = in[0].clone();
            accumulate({in[1], y});
            return y;
          }},
          .forward = tolerance::two_roundings,
          .reference = elementwise([](double a, double b) { return a + b; }),
          .differentiable = false,
          .flops = count(shape),
          .same_on_devices = true};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : elementwise_shapes) table.push_back(row_of(shape));
});

const Examples drawn([](Draw& draw) { return row_of(draw.shape(40001)); });

}  // namespace hs::examples::accumulate_rows
