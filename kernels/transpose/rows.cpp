#include "kernels/examples/register.h"
#include "kernels/transpose/transpose.h"

namespace hs::examples::transpose_rows {

OpCase row_of(const Shape& shape) {
  return {.name = "transpose " + shape.to_string(),
          .shapes = {shape},
          .run = [](const Inputs& in) { return transpose(in[0]); },
          .reference = {[R = shape[0], C = shape[1]](const std::vector<Numbers>& in) {
            Numbers y;
            for (int64_t c = 0; c < C; ++c) {
              for (int64_t r = 0; r < R; ++r) y.push_back(in[0][static_cast<size_t>(r * C + c)]);
            }
            return y;
          }},
          .same_on_devices = true,
          .nan_in_place = 1};
}

const Examples rows([](Table& table) {
  // On CUDA a block takes a second tile from row 32768 on.
  for (const Shape& shape : {Shape{3, 5}, Shape{1, 1}, Shape{0, 4}, Shape{4, 0}, Shape{33, 67}, Shape{32801, 2}}) {
    table.push_back(row_of(shape));
  }
});

const Examples drawn([](Draw& draw) { return row_of({draw.size(200), draw.positive(200)}); });

}  // namespace hs::examples::transpose_rows
