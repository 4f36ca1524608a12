#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/feed_forward/gelu_feed_forward.h"
#include "kernels/gelu/gelu.h"

namespace hs::examples::feed_forward_rows {

OpCase row_of(int64_t N, int64_t in, int64_t hidden, int64_t out) {
  // Sums of K sums: what the hidden numbers, about sqrt(K) / 7, are multiplied with is added up, and their own errors.
  const int64_t K = std::max({N, in, hidden, out});
  Tolerance sums = tolerance::composed;
  sums.absolute += tolerance::walk(K, std::sqrt(static_cast<double>(K)) / 4);
  return {.name = fmt::format("feed_forward {}x{}x{}x{}", N, in, hidden, out),
          .shapes = {{N, in}, {in, hidden}, {hidden}, {hidden, out}, {out}},
          .run = [](const Inputs& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4]); },
          .forward = sums,
          .gradient = sums,
          .reference = {[=](const std::vector<Numbers>& x) {
            Numbers h = naive_gemm(x[0], x[1], x[2], N, hidden, in, {});
            for (double& value : h) value = std::max(value, 0.0);
            return naive_gemm(h, x[3], x[4], N, out, hidden, {});
          }},
          .kinked = true,
          .nan = N > 0,
          .flops = 2.0 * static_cast<double>(N * hidden * (in + out)),
          .roundings = {2, 2, 2, 2, 2, 1}};  // the hidden layer and its gradient are 16 bits wide
}

OpCase gelu_row_of(const Shape& x, int64_t hidden, int64_t out) {
  const int64_t in = x.back(), N = x.rows(), K = std::max({N, in, hidden, out});
  Tolerance sums = tolerance::composed;  // as above, and GELU's few units
  sums.absolute += tolerance::walk(K, std::sqrt(static_cast<double>(K)) / 4);
  return {.name = fmt::format("gelu_feed_forward {}x{}x{}x{}", N, in, hidden, out),
          .shapes = {x, {in, hidden}, {hidden, out}},
          .run = [](const Inputs& in) { return gelu_feed_forward(in[0], in[1], in[2]); },
          .forward = sums,
          .gradient = sums,
          .reference = {[=](const std::vector<Numbers>& x) {
            Numbers h = naive_gemm(x[0], x[1], {}, N, hidden, in, {});
            for (double& value : h) value *= GeluGate(value).s;
            return naive_gemm(h, x[2], {}, N, out, hidden, {});
          }},
          .cuda = false,
          .integers = false,
          .nan = N > 0,
          .flops = 2.0 * static_cast<double>(N * hidden * (in + out)),
          .roundings = {3, 4, 4, 4}};
}

const Examples rows([](Table& table) {
  // Of no kernel, and around the borders of the blocks: rows, steps, chunks of the hidden layer, rows of a group.
  table.push_back(gelu_row_of({5, 7}, 3, 4));
  table.push_back(gelu_row_of({0, 16}, 16, 16));
  table.push_back(gelu_row_of({2, 1000, 16}, 48, 32));
  table.push_back(gelu_row_of({1800, 144}, 32, 80));
  table.push_back(gelu_row_of({8200, 16}, 144, 16));
  for (const auto& [N, in, hidden, out] :
       {std::array<int64_t, 4>{5, 7, 3, 4}, {1, 1, 1, 1}, {19, 33, 130, 10}, {64, 40, 128, 40}, {0, 3, 5, 2}}) {
    table.push_back(row_of(N, in, hidden, out));
  }
});

const Examples drawn([](Draw& draw) {
  const int64_t N = draw.size(70), in = draw.positive(70), hidden = draw.positive(140);
  return row_of(N, in, hidden, draw.positive(70));
});

const Examples gelu_drawn([](Draw& draw) {
  const int64_t each = draw.coin() ? 16 : 1, N = draw.size(300) + 128 * each - 128, in = each * draw.positive(6);
  return gelu_row_of({N, in}, each * draw.positive(6), each * draw.positive(6));
});

}  // namespace hs::examples::feed_forward_rows
