#include "kernels/examples/register.h"
#include "kernels/global_average_pool2d/global_average_pool2d.h"

namespace hs::examples::global_average_pool2d_rows {

OpCase row_of(const Shape& shape) {
  const int64_t pixels = shape[1] * shape[2], C = shape[3];
  return {.name = "global_average_pool2d " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& x) { return global_average_pool2d(x[0]); },
          .forward = tolerance::two_roundings,
          .gradient = tolerance::two_roundings,
          .reference = {[pixels, C](const std::vector<Numbers>& x) {
            Numbers y(x[0].size() / static_cast<size_t>(pixels));
            for (size_t i = 0; i < x[0].size(); ++i) {
              const auto at = static_cast<int64_t>(i);
              y[static_cast<size_t>(at / (pixels * C) * C + at % C)] += x[0][i] / static_cast<double>(pixels);
            }
            return y;
          }},
          .integers = false,
          .nan = shape.size() > 0,
          .terms = {pixels, 1},
          .flops = count(shape)};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : {Shape{2, 8, 8, 64}, Shape{3, 5, 4, 3}, Shape{1, 1, 1, 1}, Shape{0, 4, 4, 2},
                             Shape{2, 3, 1, 300}, Shape{1, 2, 3, 0}}) {
    table.push_back(row_of(shape));
  }
  add_far_from_0(table, "global_average_pool2d (2, 8, 8, 64)");
});

const Examples drawn([](Draw& draw) {
  return row_of({draw.size(3), draw.positive(9), draw.positive(9), draw.size(140)});
});

// As resnet8 has it.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "global_average_pool2d",
           .shapes = {{batch, 8, 8, 64}},
           .slots = {&global_average_pool2d_forward, &global_average_pool2d_backward},
           .leaves = 1}};
});

}  // namespace hs::examples::global_average_pool2d_rows
