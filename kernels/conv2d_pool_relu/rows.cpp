#include <fmt/format.h>

#include <array>

#include "engine/random.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/dropout/dropout.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"

namespace hs::examples::conv2d_pool_relu_rows {

const Examples rows([](Table& table) {
  struct Sizes {
    Shape x;
    int64_t OC;
    Conv2dOptions options;
  };
  const Sizes pooled[] = {
      {{2, 6, 6, 1}, 5, {}},
      {{17, 10, 8, 1}, 32, {}},  // conv1 of mnist_cnn
      {{17, 8, 6, 32}, 64, {}},  // conv2 of mnist_cnn
      {{3, 8, 8, 3}, 48, {.padding = 1}},
      {{2, 4, 6, 16}, 33, {.padding = 1}},
      {{1, 5, 4, 16}, 16, {}},  // the smallest for Tensor Cores
      {{2, 10, 6, 40}, 17, {}},
      {{2, 6, 8, 24}, 70, {.padding = 1}},
      {{2, 7, 8, 32}, 20, {.kernel_h = 4, .kernel_w = 3, .padding = 1}},
      {{2, 8, 8, 16}, 32, {.kernel_h = 5, .kernel_w = 3, .padding = 1}},
      {{0, 6, 6, 2}, 3, {}},
      {{1, 8, 8, 64}, 3, {}},
      {{2, 13, 13, 32}, 64, {}},  // a row and a column that no window covers
      {{2, 7, 9, 3}, 16, {}},
      {{1, 7, 70, 16}, 16, {.kernel_h = 2, .kernel_w = 2}},  // rows so long that a block has few
      {{1, 8, 45, 16}, 16, {.kernel_h = 3, .kernel_w = 2}},  // and that the last block has fewer
      {{1, 5, 6, 48}, 80, {}},                               // channels for several blocks
  };
  for (const auto& [shape, OC, options] : pooled) {
    const int64_t K = options.kernel_h * options.kernel_w * shape[3];
    const int64_t OH = shape[1] + 2 * options.padding - options.kernel_h + 1;
    const int64_t OW = shape[2] + 2 * options.padding - options.kernel_w + 1;
    const int64_t pixels = shape[0] * OH * OW;
    // On CUDA the others are three ops, unless a variant is forced (tests/cuda/conv2d_pool_relu.cpp); in 16 bits they
    // round before they pool, so that another pixel may win.
    const bool is_image = K == 9 * shape[3] && (shape[3] == 1 || shape[3] == 3);
    const bool on_cuda = is_image || (shape[3] % 16 == 0 && OC % 16 == 0);
    table.push_back({.name = fmt::format("conv2d_pool_relu {} {}x{} ->{} padding {}", shape.to_string(),
                                         options.kernel_h, options.kernel_w, OC, options.padding),
                     .shapes = {shape, {K, OC}, {OC}},
                     .run = [options](const Inputs& x) { return conv2d_pool_relu(x[0], x[1], x[2], options); },
                     .forward = tolerance::composed,
                     .gradient = tolerance::composed,
                     .reference = {[shape, OC, OH, OW, options](const std::vector<Numbers>& x) {
                       Numbers y = naive_max_pool2d(naive_conv2d(x[0], x[1], x[2], shape, OC, options),
                                                    {shape[0], OH, OW, OC}, 2, 2);
                       for (double& value : y) value = value < 0 ? 0 : value;
                       return y;
                     }},
                     .cuda = on_cuda,
                     .nan = shape[0] > 0 && OH % 2 == 0 && OW % 2 == 0,
                     .flops = 2.0 * static_cast<double>(pixels * K * OC),
                     .optional = {2}});
  }
  for (const auto& [shape, OC] : {std::pair{Shape{2, 6, 6, 16}, 16}, {{1, 7, 6, 3}, 5}}) {
    table.push_back({.name = fmt::format("conv2d_pool_relu and dropout {} ->{}", shape.to_string(), OC),
                     .shapes = {shape, {9 * shape[3], OC}, {OC}},
                     .run = {[](const Inputs& x) {
                       return conv2d_pool_relu(x[0], x[1], x[2], {}, {0.5, {42, RandomPurpose::dropout, 3, 7, 0}});
                     }},
                     .forward = tolerance::composed,
                     .gradient = tolerance::composed,
                     .cuda = shape[3] % 16 == 0,
                     .nan = false,
                     .optional = {2}});
  }
});

// Layers of the models: mnist_cnn, mnist_cnn_large, deep_cnn. The first layer of a model needs no dx.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  std::vector<TimedCase> cases;
  for (const auto& [side, C, OC] : {std::array<int64_t, 3>{28, 1, 32}, {13, 32, 64}, {26, 32, 64}}) {
    cases.push_back({.op = "conv2d_pool_relu",
                     .shapes = {{batch, side, side, C}, {9 * C, OC}, {OC}},
                     .slots = {&conv2d_pool_relu_forward, &conv2d_pool_relu_backward},
                     .leaves = C == 1 ? size_t{2} : size_t{3},
                     .autocast = true});
  }
  return cases;
});

}  // namespace hs::examples::conv2d_pool_relu_rows
