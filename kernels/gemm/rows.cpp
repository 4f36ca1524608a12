#include <fmt/format.h>

#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/gemm/gemm.h"

namespace hs::examples::gemm_rows {

// c = alpha * op(a) op(b) + beta * c + bias, stored in c's type.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias, const GemmOptions& options, Tensor c) {
  gemm({.a = a, .b = b, .bias = bias, .options = options, .c = c});
  return c;
}

struct Sizes {
  int64_t M, N, K;
};

OpCase row_of(const Sizes& sizes, bool ta, bool tb, bool adds) {
  const int64_t M = sizes.M, N = sizes.N, K = sizes.K;  // lambdas may not capture structured bindings
  GemmOptions options{.transpose_a = ta, .transpose_b = tb, .alpha = 0.5f};
  if (adds) options.beta = ta ? 1.0f : 2.0f;
  OpCase row{.name = fmt::format("gemm {}{} {}x{}x{}{}", ta ? "T" : "N", tb ? "T" : "N", M, N, K, adds ? " added" : ""),
             .shapes = {ta ? Shape{K, M} : Shape{M, K}, tb ? Shape{N, K} : Shape{K, N}, {N}},
             .run = {[=](const Inputs& x) {
               if (adds) return product(x[0], x[1], x[2], options, x[3].clone());
               const DType type = x[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
               return product(x[0], x[1], parameter(x[2]), options, Tensor::empty({M, N}, type, x[0].device()));
             }},
             .forward = tolerance::gemm,
             .reference = {[=](const std::vector<Numbers>& x) {
               Numbers c = naive_gemm(x[0], x[1], x[2], M, N, K, options);
               for (size_t i = 0; options.beta != 0 && i < c.size(); ++i) c[i] += options.beta * x[3][i];
               return c;
             }},
             .cuda = (M < 512),  // the emulator would take minutes
             .differentiable = false,
             .nan = M > 0,
             .terms = {K + 2},
             .flops = 2.0 * static_cast<double>(M * N * K),
             .optional = {2},
             .nan_in_place = 4};
  if (adds) row.shapes.push_back({M, N});
  return row;
}

const Examples rows([](Table& table) {
  // One, around the tiles' borders, nothing at all, few tiles with a long K: the sums of parts of K are added, and, on
  // the CPU, few enough rows for the last tile to begin below C, and enough for all tiles to share what was
  // packed of op(b).
  for (const Sizes& sizes : {Sizes{37, 19, 65},
                             {1, 1, 1},
                             {5, 3, 7},
                             {64, 72, 140},
                             {130, 65, 33},
                             {33, 10, 300},
                             {9, 200, 10},
                             {270, 70, 17},
                             {40, 72, 104},
                             {64, 64, 32},
                             {0, 4, 3},
                             {3, 4, 0},
                             {64, 10, 1101},
                             {40, 70, 900},
                             {57, 141, 257},
                             {530, 70, 300}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const bool adds : {false, true}) table.push_back(row_of(sizes, ta, tb, adds));
      }
    }
  }
  for (const auto& [rows, columns, depth] : {Sizes{33, 130, 10}, {40, 70, 900}}) {
    const int64_t M = rows, N = columns, K = depth;
    table.push_back({.name = fmt::format("mask of gemm with ReLU {}x{}x{}", M, N,
                                         K),  // a bit for each element, and zeros to the end of the row
                     .shapes = {{M, K}, {K, N}},
                     .run = {[=](const Inputs& x) {
                       Tensor c = Tensor::empty({M, N}, x[0].dtype()), mask = gemm_mask(M, N, Device::cpu);
                       gemm({.a = x[0], .b = x[1], .options = {.epilogue = Epilogue::relu}, .c = c, .mask = mask});
                       return mask;
                     }},
                     .reference = {[=](const std::vector<Numbers>& x) {
                       const Numbers c = naive_gemm(x[0], x[1], {}, M, N, K, {});
                       Numbers bytes(static_cast<size_t>(M * gemm_mask_row(N)));
                       for (int64_t i = 0; i < M * N; ++i) {
                         const bool positive = c[static_cast<size_t>(i)] > 0;
                         bytes[static_cast<size_t>(i / N * gemm_mask_row(N) + i % N / 8)] += positive << i % N % 8;
                       }
                       return bytes;
                     }},
                     .cuda = false,  // where a library has an order of its own
                     .differentiable = false,
                     .integers = false,
                     .kinked = true,
                     .nan = false});
  }
  const int64_t M = 20, K = 40;
  table.push_back({.name = "gemm of large numbers",  // 10^4 each: 7 of the products exceed what f16 has
                   .shapes = {{M, K}},
                   .run = {[=](const Inputs& x) {
                     const DType type = x[0].dtype() == DType::f64 ? DType::f64 : DType::f32;
                     return product(x[0], x[0], {}, {.transpose_b = true}, Tensor::empty({M, M}, type, x[0].device()));
                   }},
                   .forward = tolerance::gemm,
                   .fill = Fill::far,
                   .differentiable = false,
                   .terms = {K}});
});

const Examples drawn([](Draw& draw) {
  const int64_t most = draw.pick<int64_t>({130, 130, 130, 130, 300});
  return row_of({draw.size(most), draw.positive(most), draw.size(most)}, draw.coin(), draw.coin(), draw.coin());
});

}  // namespace hs::examples::gemm_rows
