#include <cmath>

#include "kernels/examples/register.h"
#include "kernels/gelu/gelu.h"

namespace hs::examples::gelu_rows {

OpCase row_of(const Shape& shape) {
  constexpr double u32 = tolerance::u32;
  // An exponential, whose argument is off by a few u of itself, a sum, a quotient, a product. The argument's error is
  // the larger the smaller the result: it is bounded absolutely. The two terms of the gradient may cancel.
  return {.name = "gelu " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& in) { return gelu(in[0]); },
          .forward = {16 * u32, 4 * u32, 0},
          .gradient = {16 * u32, 8 * u32, 0},
          .reference = elementwise(
              [](double x) { return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2; }),
          .fill = shape.size() > 1000 ? Fill::spaced : Fill::uniform,
          .integers = false,
          .flops = 12 * count(shape)};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{0, 4}, Shape{7, 257}, Shape{40001}}) {
    table.push_back(row_of(shape));
  }
});

const Examples drawn([](Draw& draw) { return row_of(draw.shape(40001)); });

// Inside the blocks of char_gpt, where it is not in gelu_feed_forward.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "gelu", .shapes = {{batch, 128, 512}}, .slots = {&gelu_forward, &gelu_backward}, .leaves = 1}};
});

}  // namespace hs::examples::gelu_rows
