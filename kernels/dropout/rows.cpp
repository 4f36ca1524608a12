#include <fmt/format.h>

#include <cmath>

#include "engine/random.h"
#include "kernels/dropout/dropout.h"
#include "kernels/examples/register.h"

namespace hs::examples::dropout_rows {

OpCase row_of(double rate, const Shape& shape) {
  const RandomStream stream{42, RandomPurpose::dropout, 3, 7, 0};
  return {.name = fmt::format("dropout {} {}", rate, shape.to_string()),
          .shapes = {shape},
          .run = [=](const Inputs& in) { return dropout(in[0], rate, stream); },
          .forward = tolerance::two_roundings,
          .gradient = tolerance::two_roundings,
          .reference = {[=](const std::vector<Numbers>& in) {
            Numbers y = in[0];
            const double rounded = std::round(rate * 65536) / 65536;
            for (size_t i = 0; i < y.size(); ++i) {
              const uint32_t word = random_bits(stream, i / 2);
              const double draw = (i % 2 == 0 ? word % 65536 : word / 65536) / 65536.0;
              y[i] = draw >= rounded ? y[i] / (1 - rounded) : 0;
            }
            return y;
          }},
          .integers = rate == 0.5,
          .nan = false,
          .flops = count(shape),
          .same_on_devices = true};
}

const Examples rows([](Table& table) {
  for (const double rate : {0.5, 0.25, 0.1}) table.push_back(row_of(rate, {9, 123}));
});

const Examples drawn([](Draw& draw) { return row_of(draw.pick({0.5, 0.25, 0.1, 0.9}), draw.shape(40001)); });

// As mnist_cnn_large has it.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "dropout", .shapes = {{batch, 9216}}, .slots = {&dropout_mask}}};
});

}  // namespace hs::examples::dropout_rows
