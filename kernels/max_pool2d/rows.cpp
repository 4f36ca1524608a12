#include <fmt/format.h>

#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/max_pool2d/max_pool2d.h"

namespace hs::examples::max_pool2d_rows {

struct Sizes {
  Shape x;
  int64_t window, stride;
};

OpCase row_of(const Sizes& sizes) {
  const auto& [shape, window, stride] = sizes;
  const int64_t overlapping = (window + stride - 1) / stride;  // windows, each way, whose gradients add up
  return {
      .name = fmt::format("max_pool2d {} window {} stride {}", shape.to_string(), window, stride),
      .shapes = {shape},
      .run = [sizes](const Inputs& x) { return max_pool2d(x[0], sizes.window, sizes.stride); },
      .gradient = {4 * tolerance::u32, tolerance::walk(overlapping * overlapping, tolerance::rms), 0},
      .reference =
          [sizes](const std::vector<Numbers>& x) {
            return naive_max_pool2d(x[0], sizes.x, sizes.window, sizes.stride);
          },
      .fill = Fill::spaced,
      // A NaN between windows, or where none fits any more, reaches no result.
      .nan = stride <= window && (shape[1] - window) % stride == 0 && (shape[2] - window) % stride == 0 && shape[0] > 0,
      .flops = count(shape),
      .same_on_devices = true,
      .nan_in_place = 1};
}

const Examples rows([](Table& table) {
  for (const Sizes& sizes : {Sizes{{2, 6, 6, 3}, 2, 2},
                             {{2, 5, 5, 2}, 3, 2},
                             {{3, 7, 9, 32}, 2, 2},
                             {{2, 7, 8, 16}, 3, 3},
                             {{2, 6, 6, 16}, 3, 1},
                             {{2, 5, 5, 70}, 2, 2},
                             {{2, 4, 4, 2}, 1, 1},
                             {{1, 9, 10, 3}, 2, 3},    // gaps between the windows
                             {{1, 16, 16, 1}, 16, 1},  // one, of the largest that there are
                             {{0, 4, 4, 2}, 2, 2}}) {
    table.push_back(row_of(sizes));
  }
});

const Examples drawn([](Draw& draw) {
  const int64_t window = draw.pick<int64_t>({1, 2, 2, 3}), stride = draw.pick<int64_t>({1, 2, 2, 3});
  return row_of({{draw.size(3), window + draw.size(9), window + draw.size(9), draw.positive(70)}, window, stride});
});

// On the largest tensors of mnist_cnn.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  return {{.op = "max_pool2d",
           .shapes = {{batch, 26, 26, 32}},
           .slots = {&max_pool2d_forward, &max_pool2d_backward},
           .leaves = 1}};
});

}  // namespace hs::examples::max_pool2d_rows
