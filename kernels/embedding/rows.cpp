#include <fmt/format.h>

#include <algorithm>

#include "kernels/embedding/embedding.h"
#include "kernels/examples/register.h"

namespace hs::examples::embedding_rows {

// n * n % V: some symbols often, some never.
std::vector<int32_t> some_indices(int64_t N, int64_t V) {
  std::vector<int32_t> indices;
  for (int64_t n = 0; n < N; ++n) indices.push_back(static_cast<int32_t>(n * n % V));
  return indices;
}

struct Sizes {
  Shape indices;
  int64_t V, P, C;
};

OpCase row_of(const Sizes& sizes) {
  const auto& [shape, V, P, C] = sizes;
  const std::vector<int32_t> values = some_indices(shape.size(), V);
  const Tensor indices = Tensor::from(values, shape);
  const int64_t T = shape.back(), N = shape.size(), width = C;
  return {.name = fmt::format("embedding {} of {}x{}", shape.to_string(), V, C),
          .shapes = {{V, C}, {P, C}},
          .run = [=](const Inputs& in) { return embedding(indices.to(in[0].device()), in[0], in[1]); },
          .forward = tolerance::two_roundings,
          .gradient = tolerance::sum,
          .reference = {[=](const std::vector<Numbers>& in) {
            Numbers y;
            for (int64_t n = 0; n < N; ++n) {
              for (int64_t c = 0; c < width; ++c) {
                y.push_back(in[0][values[n] * width + c] + (in[1].empty() ? 0 : in[1][n % T * width + c]));
              }
            }
            return y;
          }},
          .nan = N > 0 && V == 1 && P == T,  // of larger tables, some rows are not used
          .terms = {2, std::max<int64_t>(N, 1), std::max<int64_t>(T ? N / T : 0, 1)},
          .flops = static_cast<double>(N * C),
          .optional = {1}};
}

const Examples rows([](Table& table) {
  for (const Sizes& sizes : {Sizes{{3, 4}, 5, 6, 7},
                             {{1}, 1, 1, 1},
                             {{2, 3, 5}, 65, 5, 16},
                             {{0, 3}, 4, 3, 2},
                             {{30, 50}, 9, 50, 33},
                             {{2000}, 3, 2000, 300}}) {
    table.push_back(row_of(sizes));
  }
});

const Examples drawn([](Draw& draw) {
  const int64_t T = draw.positive(40);
  return row_of({{draw.size(30), T}, draw.positive(65), T + draw.size(9), draw.positive(70)});
});

}  // namespace hs::examples::embedding_rows
