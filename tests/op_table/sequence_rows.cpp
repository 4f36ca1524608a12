// Rows of the ops that a transformer adds.
#include <fmt/format.h>

#include <cmath>

#include "kernels/cast/cast.h"
#include "kernels/causal_attention/causal_attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gelu/gelu.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/softmax/softmax.h"
#include "tests/op_table/groups.h"

namespace hs::test {
namespace {

constexpr double u32 = tolerance::u32;

Numbers naive_layer_norm(const std::vector<Numbers>& in) {
  Numbers y = in[0];
  const size_t C = in[1].size();
  const auto length = static_cast<double>(C);
  for (size_t first = 0; first < y.size(); first += C) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < C; ++c) mean += y[first + c] / length;
    for (size_t c = 0; c < C; ++c) variance += std::pow(y[first + c] - mean, 2) / length;
    for (size_t c = 0; c < C; ++c) {
      const double n = (y[first + c] - mean) / std::sqrt(variance + 1e-5);
      y[first + c] = n * in[1][c] + (in[2].empty() ? 0 : in[2][c]);
    }
  }
  return y;
}

// n * n % V: some symbols often, some never.
std::vector<int32_t> some_indices(int64_t N, int64_t V) {
  std::vector<int32_t> indices;
  for (int64_t n = 0; n < N; ++n) indices.push_back(static_cast<int32_t>(n * n % V));
  return indices;
}

void add_embeddings(Table& table) {
  struct Sizes {
    Shape indices;
    int64_t V, P, C;
  };
  for (const auto& [shape, V, P, C] : {Sizes{{3, 4}, 5, 6, 7},
                                       {{1}, 1, 1, 1},
                                       {{2, 3, 5}, 65, 5, 16},
                                       {{0, 3}, 4, 3, 2},
                                       {{30, 50}, 9, 50, 33},
                                       {{2000}, 3, 2000, 300}}) {
    const std::vector<int32_t> values = some_indices(shape.size(), V);
    const Tensor indices = Tensor::from(values, shape);
    const int64_t T = shape.back(), N = shape.size(), width = C;
    table.push_back({.name = fmt::format("embedding {} of {}x{}", shape.to_string(), V, C),
                     .shapes = {{V, C}, {P, C}},
                     .run = [=](const Inputs& in) { return embedding(indices.to(in[0].device()), in[0], in[1]); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::sum,
                     .reference =
                         [=](const std::vector<Numbers>& in) {
                           Numbers y;
                           for (int64_t n = 0; n < N; ++n) {
                             for (int64_t c = 0; c < width; ++c) {
                               y.push_back(in[0][values[n] * width + c] +
                                           (in[1].empty() ? 0 : in[1][n % T * width + c]));
                             }
                           }
                           return y;
                         },
                     .nan = V == 1,  // of a larger table, some rows are not used
                     .terms = {2, std::max<int64_t>(N, 1), std::max<int64_t>(T ? N / T : 0, 1)},
                     .flops = static_cast<double>(N * C),
                     .optional = {1}});
  }
}

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

void add_attention(Table& table) {
  struct Sizes {
    int64_t B, T, heads, D;
  };
  for (const auto& [B, T, heads, D] : {Sizes{2, 5, 2, 4},
                                       {1, 1, 1, 1},
                                       {0, 4, 2, 3},
                                       {2, 0, 1, 4},
                                       {3, 17, 2, 5},
                                       {2, 33, 3, 32},
                                       {1, 130, 1, 48},
                                       {2, 128, 4, 32},
                                       {1, 200, 2, 70}}) {
    const auto reference = [B = B, T = T, heads = heads, D = D](const std::vector<Numbers>& in) {
      return naive_attention(in[0], B, T, heads, D);
    };
    // S, of size one, is off by some u; so are the exponentials, relatively, and then the means of v. dS subtracts from
    // dP, a sum of D products; dk and dv add up over the queries.
    table.push_back({.name = fmt::format("causal_attention {}x{}, {} heads of {}", B, T, heads, D),
                     .shapes = {{B, T, 3 * heads * D}},
                     .run = [heads = heads](const Inputs& in) { return causal_attention(in[0], heads); },
                     .forward = {16 * u32, 8 * u32, 0},
                     .gradient = {16 * u32, 32 * u32, 0},
                     .reference = reference,
                     .integers = false,
                     .nan = B * T > 0,
                     .flops = 2.0 * static_cast<double>(B * heads * T * T * D)});
  }
  // Four times larger q, k, v: S reaches 25, where it is off by 50 u, and one key has most of a row. Maxima of later
  // blocks make what was summed before vanish.
  const int64_t B = 1, T = 80, heads = 2, D = 32;
  table.push_back({.name = "causal_attention, decided 1x80, 2 heads of 32",
                   .shapes = {{B, T, 3 * heads * D}},
                   .run = [](const Inputs& in) { return causal_attention(scale(in[0], 4), heads); },
                   .forward = {64 * u32, 256 * u32, 0},
                   .gradient = {64 * u32, 4096 * u32, 0},
                   .reference =
                       [](const std::vector<Numbers>& in) {
                         Numbers qkv = in[0];
                         for (double& value : qkv) value *= 4;
                         return naive_attention(qkv, B, T, heads, D);
                       },
                   .integers = false,
                   .flops = 2.0 * static_cast<double>(B * heads * T * T * D)});
}

}  // namespace

void add_sequences(Table& table) {
  for (const Shape& shape :
       {Shape{3, 5}, Shape{1, 1}, Shape{2, 3, 33}, Shape{0, 4}, Shape{70, 130}, Shape{5, 3, 128}}) {
    // Sums of a row's numbers, which are about one, in f32: their error is a few u, in each number alike. dscale and
    // dshift add up the rows' errors.
    table.push_back({.name = "layer_norm " + shape.to_string(),
                     .shapes = {shape, {shape.back()}, {shape.back()}},
                     .run = [](const Inputs& in) { return layer_norm(in[0], parameter(in[1]), parameter(in[2])); },
                     .forward = {8 * u32, 16 * u32, 0},
                     .gradient = {16 * u32, 64 * u32, 0},
                     .reference = naive_layer_norm,
                     .integers = false,
                     .nan = shape.size() > 0,
                     .flops = 8 * count(shape),
                     .optional = {2}});
  }
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{0, 4}, Shape{7, 257}, Shape{40001}}) {
    // An exponential, whose argument is off by a few u of itself, a sum, a quotient, a product. The argument's error is
    // the larger the smaller the result: it is bounded absolutely. The two terms of the gradient may cancel.
    table.push_back({.name = "gelu " + shape.to_string(),
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return gelu(in[0]); },
                     .forward = {16 * u32, 4 * u32, 0},
                     .gradient = {16 * u32, 8 * u32, 0},
                     .reference = elementwise([](double x) {
                       return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
                     }),
                     .fill = shape.size() > 1000 ? Fill::spaced : Fill::uniform,
                     .integers = false,
                     .flops = 12 * count(shape)});
  }
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{0, 4}, Shape{2, 3, 33}, Shape{70, 130}}) {
    // The exponential of a difference up to 10, which is off by 8 u; a sum of exponentials; a quotient. The gradient
    // subtracts a weighted mean of dy from dy.
    table.push_back({.name = "softmax " + shape.to_string(),
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return softmax(in[0]); },
                     .forward = {20 * u32, 0, 0},
                     .gradient = {20 * u32, 8 * u32, 0},
                     .reference =
                         [C = static_cast<size_t>(shape.back())](const std::vector<Numbers>& in) {
                           Numbers y = in[0];
                           for (size_t first = 0; first < y.size(); first += C) {
                             double sum = 0;
                             for (size_t c = 0; c < C; ++c) sum += std::exp(y[first + c]);
                             for (size_t c = 0; c < C; ++c) y[first + c] = std::exp(y[first + c]) / sum;
                           }
                           return y;
                         },
                     .fill = shape.size() > 100 ? Fill::spaced : Fill::uniform,
                     .integers = false,
                     .nan = shape.size() > 0,
                     .flops = 4 * count(shape)});
  }
  add_embeddings(table);
  add_attention(table);
}

}  // namespace hs::test
