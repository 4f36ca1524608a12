#include <cmath>

#include "kernels/examples/register.h"
#include "kernels/softmax/softmax.h"

namespace hs::examples::softmax_rows {

OpCase row_of(const Shape& shape) {
  constexpr double u32 = tolerance::u32;
  // The exponential of a difference up to 10, which is off by 8 u; a sum of exponentials; a quotient. The gradient
  // subtracts a weighted mean of dy from dy.
  return {.name = "softmax " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& in) { return softmax(in[0]); },
          .forward = {20 * u32, 0, 0},
          .gradient = {20 * u32, 8 * u32, 0},
          .reference = {[C = static_cast<size_t>(shape.back())](const std::vector<Numbers>& in) {
            Numbers y = in[0];
            for (size_t first = 0; first < y.size(); first += C) {
              double sum = 0;
              for (size_t c = 0; c < C; ++c) sum += std::exp(y[first + c]);
              for (size_t c = 0; c < C; ++c) y[first + c] = std::exp(y[first + c]) / sum;
            }
            return y;
          }},
          .fill = shape.size() > 100 ? Fill::spaced : Fill::uniform,
          .integers = false,
          .nan = shape.size() > 0,
          .flops = 4 * count(shape)};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{0, 4}, Shape{2, 3, 33}, Shape{70, 130}}) {
    table.push_back(row_of(shape));
  }
  add_far_from_0(table, "softmax (2, 3, 33)");
});

const Examples drawn([](Draw& draw) { return row_of({draw.size(70), draw.positive(300)}); });

// Of char_gpt's characters.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "softmax", .shapes = {{batch, 128, 65}}, .slots = {&softmax_forward, &softmax_backward}, .leaves = 1}};
});

}  // namespace hs::examples::softmax_rows
