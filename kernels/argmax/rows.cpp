#include "kernels/argmax/argmax.h"

#include <algorithm>

#include "kernels/examples/register.h"

namespace hs::examples::argmax_rows {

OpCase row_of(const Shape& shape) {
  return {.name = "argmax " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& in) { return argmax(in[0]); },
          .reference = {[C = shape.back()](const std::vector<Numbers>& in) {
            Numbers places;
            for (auto row = in[0].begin(); row != in[0].end(); row += C) {
              places.push_back(static_cast<double>(std::max_element(row, row + C) - row));
            }
            return places;
          }},
          .differentiable = false,
          .nan = false};
}

const Examples rows([](Table& table) {
  for (const Shape& shape : {Shape{5, 10}, Shape{1}, Shape{0, 3}, Shape{2, 3, 1}, Shape{7, 131}, Shape{301, 65}}) {
    table.push_back(row_of(shape));
  }
  add_far_from_0(table, "argmax (7, 131)");
});

const Examples drawn([](Draw& draw) { return row_of({draw.size(100), draw.positive(140)}); });

}  // namespace hs::examples::argmax_rows
