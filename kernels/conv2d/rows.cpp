#include <fmt/format.h>

#include <array>

#include "kernels/conv2d/conv2d.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"

namespace hs::examples::conv2d_rows {

const Examples rows([](Table& table) {
  struct Sizes {
    Shape x;
    int64_t OC;
    Conv2dOptions options;
  };
  const Sizes rows[] = {
      {{2, 5, 5, 1}, 2, {}},
      {{1, 3, 3, 1}, 1, {}},
      {{3, 6, 7, 2}, 3, {.stride = 2}},
      {{2, 5, 4, 3}, 5, {.padding = 1}},
      {{2, 7, 7, 2}, 4, {.stride = 2, .padding = 1}},
      {{2, 4, 5, 3}, 7, {.kernel_h = 1, .kernel_w = 1}},
      {{2, 5, 6, 2}, 3, {.kernel_h = 2, .kernel_w = 3}},
      {{2, 9, 8, 16}, 5, {.kernel_h = 5, .kernel_w = 3, .padding = 2}},
      {{17, 9, 9, 1}, 32, {}},             // conv1 of mnist_cnn: few input channels
      {{3, 8, 9, 3}, 48, {.padding = 1}},  // few channels, several blocks of taps
      {{3, 9, 8, 1}, 16, {.stride = 3}},
      {{18, 7, 7, 32}, 64, {}},             // conv2 of mnist_cnn
      {{2, 8, 8, 24}, 70, {.padding = 1}},  // channels that do not fill a vector
      {{2, 6, 6, 40}, 17, {.stride = 2, .padding = 2}},
      {{2, 7, 7, 6}, 20, {.stride = 2, .padding = 1}},
      {{2, 8, 9, 32}, 64, {}},
      {{2, 7, 6, 96}, 17, {.stride = 2, .padding = 2}},
      {{2, 6, 6, 64}, 40, {.kernel_h = 5, .kernel_w = 3, .padding = 2}},
      {{3, 5, 4, 32}, 16, {.kernel_h = 1, .kernel_w = 1}},
      {{3, 8, 7, 16}, 32, {.kernel_h = 1, .kernel_w = 1, .stride = 2}},  // a shortcut of resnet8
      {{2, 8, 8, 40}, 33, {.kernel_h = 3, .kernel_w = 2, .padding = 1}},
      {{1, 13, 40, 32}, 32, {.padding = 1}},  // a long row
      {{0, 5, 5, 2}, 3, {}},
      {{0, 5, 5, 32}, 3, {}},
  };
  for (const auto& [shape, OC, options] : rows) {
    const int64_t K = options.kernel_h * options.kernel_w * shape[3];
    const auto sizes = [&](int axis, int64_t kernel) {
      return (shape[axis] + 2 * options.padding - kernel) / options.stride + 1;
    };
    const int64_t pixels = shape[0] * sizes(1, options.kernel_h) * sizes(2, options.kernel_w);
    table.push_back(
        {.name = fmt::format("conv2d {} {}x{} ->{} stride {} padding {}", shape.to_string(), options.kernel_h,
                             options.kernel_w, OC, options.stride, options.padding),
         .shapes = {shape, {K, OC}, {OC}},
         .run = [options](const Inputs& x) { return conv2d(x[0], x[1], x[2], options); },
         .forward = tolerance::gemm,
         .gradient = tolerance::gemm,
         .reference = [shape, OC, options](
                          const std::vector<Numbers>& x) { return naive_conv2d(x[0], x[1], x[2], shape, OC, options); },
         .nan = options.stride == 1 && shape[0] > 0,  // a stride may skip pixels
         .terms = {K + 1, options.kernel_h * options.kernel_w * OC, pixels, pixels},
         .flops = 2.0 * static_cast<double>(pixels * K * OC),
         .roundings = {1, 2, 1, 1},  // im2col stores the columns' gradients in 16 bits, then sums them
         .optional = {2}});
  }
  const Sizes with_relu[] = {
      {{17, 9, 9, 1}, 32, {.relu = true}},  // conv1 of mnist_cnn_large
      {{2, 5, 4, 3}, 5, {.padding = 1, .relu = true}},
      {{3, 6, 7, 2}, 3, {.stride = 2, .relu = true}},
      {{2, 5, 6, 3}, 48, {.padding = 1, .relu = true}},  // few outputs: none so near zero that a small step crosses it
      {{4, 7, 7, 32}, 64, {.relu = true}},
      {{0, 5, 5, 2}, 3, {.relu = true}},
  };
  for (const auto& [shape, OC, options] : with_relu) {
    table.push_back({.name = fmt::format("conv2d with ReLU {} ->{} stride {} padding {}", shape.to_string(), OC,
                                         options.stride, options.padding),
                     .shapes = {shape, {9 * shape[3], OC}, {OC}},
                     .run = [options](const Inputs& x) { return conv2d(x[0], x[1], x[2], options); },
                     .forward = tolerance::composed,
                     .gradient = tolerance::composed,
                     .reference = {[shape, OC, options](const std::vector<Numbers>& x) {
                       Numbers y = naive_conv2d(x[0], x[1], x[2], shape, OC, options);
                       for (double& value : y) value = value < 0 ? 0 : value;
                       return y;
                     }},
                     .nan = options.stride == 1 && shape[0] > 0,
                     .roundings = {1, 2, 1, 1},  // as for conv2d
                     .optional = {2}});
  }
  // The first layer of a network: only the weights get a gradient, the image needs none.
  table.push_back({.name = "conv2d of a constant image, after ReLU and pooling",
                   .shapes = {{9, 32}, {288, 16}},
                   .run = {[](const Inputs& in) {
                     const OpCase image{.name = "image", .shapes = {{3, 10, 10, 1}}, .run = nullptr};
                     const Tensor x = make_inputs(image, in[0].dtype())[0].to(in[0].device());
                     const Tensor hidden = relu(max_pool2d(conv2d(x, in[0], {}), 2, 2));
                     return conv2d(hidden, in[1], {});
                   }},
                   .forward = tolerance::composed,
                   .gradient = tolerance::composed,
                   .half = false,  // rounding to 16 bits may change which pixel is the maximum of its window
                   .integers = false,
                   .nan = false});
});

// Layers of the models: mnist_cnn, mnist_cnn_large, deep_cnn. The first layer of a model needs no dx. Pooling and ReLU
// after a convolution leave most of dy zero, and some variants skip zeros.
const Examples timed([](int64_t batch) -> std::vector<TimedCase> {
  std::vector<TimedCase> cases;
  for (const auto& [side, C, OC] : {std::array<int64_t, 3>{28, 1, 32}, {13, 32, 64}, {26, 32, 64}}) {
    TimedCase layer{.op = "conv2d",
                    .shapes = {{batch, side, side, C}, {9 * C, OC}, {OC}},
                    .slots = {&conv2d_forward},
                    .autocast = true};
    cases.push_back(layer);
    layer.slots = {&conv2d_backward};
    layer.leaves = C == 1 ? 2 : 3;
    for (const auto& [zeros, remark] : {std::pair(0.0, ", dense"), {0.875, ", 7/8 zeros"}}) {
      layer.zeros = zeros;
      layer.remark = remark;
      cases.push_back(layer);
    }
  }
  return cases;
});

}  // namespace hs::examples::conv2d_rows
