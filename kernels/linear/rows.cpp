#include <fmt/format.h>

#include <tuple>

#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear/linear.h"

namespace hs::examples::linear_rows {

const Examples rows([](Table& table) {
  struct Sizes {
    int64_t N, in, out;
  };
  for (const auto& [N, in, out] :
       {Sizes{5, 7, 3}, {1, 1, 1}, {64, 33, 10}, {33, 257, 129}, {2, 1, 9}, {9, 1600, 10}, {130, 40, 16}}) {
    table.push_back(
        {.name = fmt::format("linear {}x{}x{}", N, in, out),
         .shapes = {{N, in}, {in, out}, {out}},
         .run = [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
         .forward = tolerance::gemm,
         .gradient = tolerance::gemm,
         .reference = [=](const std::vector<Numbers>& x) { return naive_gemm(x[0], x[1], x[2], N, out, in, {}); },
         .terms = {in + 1, out, N, N},
         .flops = 2.0 * static_cast<double>(N * in * out),
         .optional = {2}});
    table.push_back({.name = fmt::format("linear, all gradients at once {}x{}x{}", N, in, out),
                     .shapes = {{N, in}, {in, out}, {N, out}},
                     .run = {[](const Inputs& x) {
                       Tensor dx = x[0].empty_like(), dweight = x[1].empty_like();
                       Tensor dbias = Tensor::empty({x[1].shape()[1]}, x[0].dtype(), x[0].device());
                       linear_backward({x[0], x[1], x[2], false, dx, dweight, dbias});
                       return dweight;
                     }},
                     .forward = tolerance::gemm,
                     .cuda = out <= 16,
                     .differentiable = false,
                     .nan = false,
                     .terms = {N},
                     .flops = 6.0 * static_cast<double>(N * in * out)});
  }
  // Rows of a sequence, and a weight that is stored the other way round.
  for (const auto& [lead, in, out] :
       {std::tuple(Shape{2, 3, 1}, 7, 5), {Shape{3, 1}, 33, 18}, {Shape{0, 4, 1}, 3, 2}}) {
    const int64_t N = lead.size(), rows_in = in, rows_out = out;
    table.push_back({.name = fmt::format("linear, weight (out, in) {}x{}x{}", N, in, out),
                     .shapes = {lead.with_back(in), {out, in}, {out}},
                     .run = [](const Inputs& x) { return linear(x[0], x[1], x[2], WeightOrder::out_in); },
                     .forward = tolerance::gemm,
                     .gradient = tolerance::gemm,
                     .reference = {[=](const std::vector<Numbers>& x) {
                       return naive_gemm(x[0], x[1], x[2], N, rows_out, rows_in, {.transpose_b = true});
                     }},
                     .nan = N > 0,
                     .terms = {in + 1, out, N, N},
                     .flops = 2.0 * static_cast<double>(N * in * out),
                     .optional = {2}});
    table.push_back({.name = fmt::format("linear, rows of {} {}x{}", lead.to_string(), in, out),
                     .shapes = {lead.with_back(in), {in, out}, {out}},
                     .run = [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
                     .forward = tolerance::gemm,
                     .gradient = tolerance::gemm,
                     .reference = {[=](const std::vector<Numbers>& x) {
                       return naive_gemm(x[0], x[1], x[2], N, rows_out, rows_in, {});
                     }},
                     .nan = N > 0,
                     .terms = {in + 1, out, N, N},
                     .flops = 2.0 * static_cast<double>(N * in * out),
                     .optional = {2}});
  }
});

// The products in training the linear layers of mnist_cnn, mnist_cnn_large and char_gpt, and square ones.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  std::vector<TimedCase> cases;
  for (const int64_t side : {256, 512, 1024}) {
    cases.push_back({.op = "linear", .shapes = {{side, side}, {side, side}, {0}}, .slots = {&gemm}, .autocast = true});
  }
  const auto layer = [&](int64_t rows, int64_t in, int64_t out) {
    cases.push_back(
        {.op = "linear", .shapes = {{rows, in}, {in, out}, {0}}, .slots = {&gemm}, .leaves = 3, .autocast = true});
  };
  layer(batch, 9216, 128);
  for (const int64_t out : {65, 512}) layer(batch * 128, 128, out);
  return cases;
});

}  // namespace hs::examples::linear_rows
