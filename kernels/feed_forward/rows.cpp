#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/feed_forward/feed_forward.h"

namespace hs::examples::feed_forward_rows {

const Examples rows([](Table& table) {
  for (const auto& [N, in, hidden, out] :
       {std::array<int64_t, 4>{5, 7, 3, 4}, {1, 1, 1, 1}, {19, 33, 130, 10}, {64, 40, 128, 40}}) {
    table.push_back({.name = fmt::format("feed_forward {}x{}x{}x{}", N, in, hidden, out),
                     .shapes = {{N, in}, {in, hidden}, {hidden}, {hidden, out}, {out}},
                     .run = [](const Inputs& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4]); },
                     .forward = tolerance::composed,
                     .gradient = tolerance::composed,
                     .reference = {[=](const std::vector<Numbers>& x) {
                       Numbers h = naive_gemm(x[0], x[1], x[2], N, hidden, in, {});
                       for (double& value : h) value = std::max(value, 0.0);
                       return naive_gemm(h, x[3], x[4], N, out, hidden, {});
                     }},
                     .nan = hidden > 1,  // the ReLU stops the only hidden number of the smallest row
                     .flops = 2.0 * static_cast<double>(N * hidden * (in + out)),
                     .roundings = {2, 2, 2, 2, 2, 1}});  // the hidden layer and its gradient are 16 bits wide
  }
});

}  // namespace hs::examples::feed_forward_rows
