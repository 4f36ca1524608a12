#include "engine/slots.h"
#include "kernels/examples/register.h"

namespace hs::examples::accumulate_rows {

const Examples rows([](Table& table) {
  for (const Shape& shape : elementwise_shapes) {
    table.push_back({.name = "accumulate " + shape.to_string(),
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
                     .same_on_devices = true});
  }
});

}  // namespace hs::examples::accumulate_rows
