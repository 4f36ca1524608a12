#include <fmt/format.h>

#include <cmath>

#include "kernels/causal_attention/causal_attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/register.h"

namespace hs::examples::causal_attention_rows {

Numbers naive_attention(const Numbers& qkv, int64_t B, int64_t T, int64_t heads, int64_t D) {
  const int64_t C = heads * D;
  Numbers y(static_cast<size_t>(B * T * C));
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto in = [&](int64_t part, int64_t t, int64_t d) { return qkv[((b * T + t) * 3 + part) * C + h * D + d]; };
      for (int64_t i = 0; i < T; ++i) {
        Numbers p(static_cast<size_t>(i + 1));
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          double product = 0;
          for (int64_t d = 0; d < D; ++d) product += in(0, i, d) * in(1, j, d);
          sum += p[j] = std::exp(product / std::sqrt(static_cast<double>(D)));
        }
        for (int64_t d = 0; d < D; ++d) {
          double& out = y[(b * T + i) * C + h * D + d];
          for (int64_t j = 0; j <= i; ++j) out += p[j] / sum * in(2, j, d);
        }
      }
    }
  }
  return y;
}

constexpr double u32 = tolerance::u32;

struct Sizes {
  int64_t B, T, heads, D;
};

OpCase row_of(const Sizes& sizes) {
  const auto [B, T, heads, D] = sizes;
  // S, of size one, is off by some u; so are the exponentials, relatively, and then the means of v. dS subtracts from
  // dP, a sum of D products; dk and dv add up over the queries.
  return {.name = fmt::format("causal_attention {}x{}, {} heads of {}", B, T, heads, D),
          .shapes = {{B, T, 3 * heads * D}},
          .run = [heads = heads](const Inputs& in) { return causal_attention(in[0], heads); },
          .forward = {16 * u32, 8 * u32, 0},
          .gradient = {16 * u32, 32 * u32, 0},
          .reference = {[sizes](const std::vector<Numbers>& in) {
            return naive_attention(in[0], sizes.B, sizes.T, sizes.heads, sizes.D);
          }},
          .integers = false,
          .nan = B * T > 0,
          .flops = 2.0 * static_cast<double>(B * heads * T * T * D)};
}

const Examples rows([](Table& table) {
  for (const Sizes& sizes : {Sizes{2, 5, 2, 4},
                             {1, 1, 1, 1},
                             {0, 4, 2, 3},
                             {2, 0, 1, 4},
                             {3, 17, 2, 5},
                             {2, 33, 3, 32},
                             {1, 130, 1, 48},
                             {2, 128, 4, 32},
                             {2, 66, 2, 16},
                             {1, 66, 1, 64},
                             {1, 44, 1, 128},
                             {1, 200, 2, 70}}) {
    table.push_back(row_of(sizes));
  }
  // Four times larger q, k, v: S reaches 25, where it is off by 50 u, and one key has most of a row. Maxima of later
  // blocks make what was summed before vanish. A gradient of P times 50 u, dP, up to 25, k, up to 4, and 4 / sqrt(D),
  // is off by 3600 u, and dk adds that up over the queries that its key decides.
  const int64_t B = 1, T = 80, heads = 2, D = 32;
  table.push_back({.name = "causal_attention, decided 1x80, 2 heads of 32",
                   .shapes = {{B, T, 3 * heads * D}},
                   .run = [](const Inputs& in) { return causal_attention(scale(in[0], 4), heads); },
                   .forward = {64 * u32, 256 * u32, 0},
                   .gradient = {64 * u32, 16384 * u32, 0},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers qkv = in[0];
                     for (double& value : qkv) value *= 4;
                     return naive_attention(qkv, B, T, heads, D);
                   }},
                   .integers = false,
                   .flops = 2.0 * static_cast<double>(B * heads * T * T * D)});
});

const Examples drawn([](Draw& draw) {
  return row_of({draw.size(3), draw.size(draw.pick<int64_t>({40, 70, 130})), draw.positive(3), draw.positive(70)});
});

// Of char_gpt, but with the first row's two heads.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "causal_attention",
           .shapes = {{batch, 128, 384}},
           .slots = {&causal_attention_forward, &causal_attention_backward},
           .leaves = 1}};
});

}  // namespace hs::examples::causal_attention_rows
