#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "kernels/cast/cast.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/gemm/gemm.h"
#include "kernels/linear/linear.h"

namespace hs::examples::linear_rows {

struct Sizes {
  int64_t N, in, out;
};

OpCase row_of(const Sizes& c) {
  const auto [N, in, out] = c;
  return {
      .name = fmt::format("linear {}x{}x{}", N, in, out),
      .shapes = {{N, in}, {in, out}, {out}},
      .run = [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
      .forward = tolerance::gemm,
      .gradient = tolerance::gemm,
      .reference = [c](const std::vector<Numbers>& x) { return naive_gemm(x[0], x[1], x[2], c.N, c.out, c.in, {}); },
      .nan = N > 0,
      .terms = {in + 1, out, N, N},
      .flops = 2.0 * static_cast<double>(N * in * out),
      .optional = {2}};
}

// The gradients side by side in their type, as join() does it in f32.
Tensor all_of(const std::vector<Tensor>& gradients) {
  int64_t size = 0;
  for (const Tensor& gradient : gradients) size += gradient.size();
  Tensor all = Tensor::empty({std::exchange(size, 0)}, gradients[0].dtype(), gradients[0].device());
  for (const Tensor& gradient : gradients) {
    all.slice(std::exchange(size, size + gradient.size()), gradient.shape()).copy_from(gradient);
  }
  return all;
}

OpCase backward_row(const Sizes& c, bool added) {
  const auto [N, in, out] = c;
  return {.name = fmt::format("linear, all gradients at once{} {}x{}x{}", added ? ", added" : "", N, in, out),
          .shapes = {{N, in}, {in, out}, {N, out}},
          .run = {[added](const Inputs& x) {
            Tensor dx = x[0].empty_like(), dweight = added ? x[1].clone() : x[1].empty_like();
            Tensor dbias = Tensor::empty({x[1].shape()[1]}, x[0].dtype(), x[0].device());
            linear_backward(
                {x[0], x[1], x[2], WeightOrder::in_out, false, added, dx, dweight, added ? no_tensor() : dbias});
            return added ? all_of({dx, dweight}) : all_of({dx, dweight, dbias});
          }},
          .forward = tolerance::gemm,
          .cuda = out <= 16,
          .differentiable = false,
          .nan = false,
          .terms = {std::max(N + added, out)},
          .flops = 6.0 * static_cast<double>(N * in * out)};
}

// A weight that is stored the other way round.
OpCase turned_row(const Shape& lead, int64_t in, int64_t out) {
  const int64_t N = lead.size();
  return {.name = fmt::format("linear, weight (out, in) {}x{}x{}", N, in, out),
          .shapes = {lead.with_back(in), {out, in}, {out}},
          .run = [](const Inputs& x) { return linear(x[0], x[1], x[2], WeightOrder::out_in); },
          .forward = tolerance::gemm,
          .gradient = tolerance::gemm,
          .reference = {[=](const std::vector<Numbers>& x) {
            return naive_gemm(x[0], x[1], x[2], N, out, in, {.transpose_b = true});
          }},
          .nan = N > 0,
          .terms = {in + 1, out, N, N},
          .flops = 2.0 * static_cast<double>(N * in * out),
          .optional = {2}};
}

const Examples rows([](Table& table) {
  for (const Sizes& c :
       {Sizes{5, 7, 3}, {1, 1, 1}, {64, 33, 10}, {33, 257, 129}, {2, 1, 9}, {9, 1600, 10}, {130, 40, 16}}) {
    table.push_back(row_of(c));
    for (const bool added : {false, true}) table.push_back(backward_row(c, added));
  }
  // Rows of a sequence.
  for (const auto& [lead, in, out] :
       {std::tuple(Shape{2, 3, 1}, 7, 5), {Shape{3, 1}, 33, 18}, {Shape{0, 4, 1}, 3, 2}}) {
    table.push_back(turned_row(lead, in, out));
    OpCase row = row_of({lead.size(), in, out});
    row.name = fmt::format("linear, rows of {} {}x{}", lead.to_string(), in, out);
    row.shapes[0] = lead.with_back(in);
    table.push_back(std::move(row));
  }
});

Sizes some_sizes(Draw& draw) {
  const int64_t most = draw.pick<int64_t>({130, 130, 130, 130, 300});
  return {draw.size(most), draw.positive(most), draw.positive(most)};
}
const Examples drawn([](Draw& draw) { return row_of(some_sizes(draw)); });
const Examples drawn_backward([](Draw& draw) { return backward_row(some_sizes(draw), false); });
const Examples drawn_turned([](Draw& draw) {
  const auto [N, in, out] = some_sizes(draw);
  return turned_row({N, 1}, in, out);
});

// Square products, and those in training a linear layer of mnist_cnn_large and two of char_gpt.
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
