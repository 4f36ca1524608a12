#include <fmt/format.h>

#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/gemm/gemm.h"

namespace hs::examples::gemm_rows {

const Examples rows([](Table& table) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const GemmOptions options{.transpose_a = ta, .transpose_b = tb, .alpha = 0.5f};
      const int64_t M = 37, N = 19, K = 65;
      table.push_back(
          {.name = fmt::format("gemm {}{} 37x19x65", ta ? "T" : "N", tb ? "T" : "N"),
           .shapes = {ta ? Shape{K, M} : Shape{M, K}, tb ? Shape{N, K} : Shape{K, N}, {N}},
           .run = [=](const Inputs& x) { return matmul(x[0], x[1], x[2], options); },
           .forward = tolerance::gemm,
           .reference = [=](const std::vector<Numbers>& x) { return naive_gemm(x[0], x[1], x[2], M, N, K, options); },
           .differentiable = false,
           .terms = {K + 1},
           .flops = 2.0 * M * N * K,
           .optional = {2}});
    }
  }
});

}  // namespace hs::examples::gemm_rows
