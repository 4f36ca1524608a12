// Rows of convolutions and of pooling.
#include <fmt/format.h>

#include "engine/random.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/dropout/dropout.h"
#include "kernels/global_average_pool2d/global_average_pool2d.h"
#include "kernels/linear/linear.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"
#include "tests/op_table/groups.h"
#include "tests/op_table/naive.h"

namespace hs::test {

void add_convolutions(Table& table) {
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
                     .reference =
                         [shape, OC, options](const std::vector<Numbers>& x) {
                           Numbers y = naive_conv2d(x[0], x[1], x[2], shape, OC, options);
                           for (double& value : y) value = value < 0 ? 0 : value;
                           return y;
                         },
                     .nan = options.stride == 1 && shape[0] > 0,
                     .roundings = {1, 2, 1, 1},  // as for conv2d
                     .optional = {2}});
  }
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
                     .reference =
                         [shape, OC, OH, OW, options](const std::vector<Numbers>& x) {
                           Numbers y = naive_max_pool2d(naive_conv2d(x[0], x[1], x[2], shape, OC, options),
                                                        {shape[0], OH, OW, OC}, 2, 2);
                           for (double& value : y) value = value < 0 ? 0 : value;
                           return y;
                         },
                     .cuda = on_cuda,
                     .nan = shape[0] > 0 && OH % 2 == 0 && OW % 2 == 0,
                     .flops = 2.0 * static_cast<double>(pixels * K * OC),
                     .optional = {2}});
  }
  for (const auto& [shape, OC] : {std::pair{Shape{2, 6, 6, 16}, 16}, {{1, 7, 6, 3}, 5}}) {
    table.push_back({.name = fmt::format("conv2d_pool_relu and dropout {} ->{}", shape.to_string(), OC),
                     .shapes = {shape, {9 * shape[3], OC}, {OC}},
                     .run =
                         [](const Inputs& x) {
                           return conv2d_pool_relu(x[0], x[1], x[2], {}, {0.5, {42, RandomPurpose::dropout, 3, 7, 0}});
                         },
                     .forward = tolerance::composed,
                     .gradient = tolerance::composed,
                     .cuda = shape[3] % 16 == 0,
                     .nan = false,
                     .optional = {2}});
  }
  // The first layer of a network: only the weights get a gradient, the image needs none.
  table.push_back({.name = "conv2d of a constant image, after ReLU and pooling",
                   .shapes = {{9, 32}, {288, 16}},
                   .run =
                       [](const Inputs& in) {
                         const OpCase image{.name = "image", .shapes = {{3, 10, 10, 1}}, .run = nullptr};
                         const Tensor x = make_inputs(image, in[0].dtype())[0].to(in[0].device());
                         const Tensor hidden = relu(max_pool2d(conv2d(x, in[0], {}), 2, 2));
                         return conv2d(hidden, in[1], {});
                       },
                   .forward = tolerance::composed,
                   .gradient = tolerance::composed,
                   .half = false,  // rounding to 16 bits may change which pixel is the maximum of its window
                   .integers = false,
                   .nan = false});
}

void add_pooling(Table& table) {
  struct Sizes {
    Shape x;
    int64_t window, stride;
  };
  for (const auto& [shape, window, stride] : {Sizes{{2, 6, 6, 3}, 2, 2},
                                              {{2, 7, 5, 1}, 2, 2},
                                              {{1, 2, 2, 1}, 2, 2},
                                              {{2, 5, 5, 2}, 3, 2},
                                              {{2, 5, 6, 3}, 2, 1},
                                              {{3, 7, 9, 32}, 2, 2},
                                              {{2, 7, 8, 16}, 3, 3},
                                              {{2, 6, 6, 16}, 3, 1},
                                              {{2, 5, 5, 70}, 2, 2},
                                              {{2, 4, 4, 2}, 1, 1},
                                              {{0, 4, 4, 2}, 2, 2}}) {
    table.push_back(
        {.name = fmt::format("max_pool2d {} window {} stride {}", shape.to_string(), window, stride),
         .shapes = {shape},
         .run = [window, stride](const Inputs& x) { return max_pool2d(x[0], window, stride); },
         .gradient = tolerance::two_roundings,  // overlapping windows add up
         .reference = [shape, window,
                       stride](const std::vector<Numbers>& x) { return naive_max_pool2d(x[0], shape, window, stride); },
         .fill = Fill::spaced,
         .nan = shape[1] % window == 0 && shape[2] % window == 0 && shape[0] > 0,
         .flops = count(shape),
         .same_on_devices = true});
  }
  for (const Shape& shape : {Shape{2, 8, 8, 64}, Shape{3, 5, 4, 3}, Shape{1, 1, 1, 1}, Shape{0, 4, 4, 2},
                             Shape{2, 3, 1, 300}, Shape{1, 2, 3, 0}}) {
    const int64_t pixels = shape[1] * shape[2], C = shape[3];
    table.push_back({.name = "global_average_pool2d " + shape.to_string(),
                     .shapes = {shape},
                     .run = [](const Inputs& x) { return global_average_pool2d(x[0]); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::two_roundings,
                     .reference =
                         [pixels, C](const std::vector<Numbers>& x) {
                           Numbers y(x[0].size() / static_cast<size_t>(pixels));
                           for (size_t i = 0; i < x[0].size(); ++i) {
                             const auto at = static_cast<int64_t>(i);
                             y[static_cast<size_t>(at / (pixels * C) * C + at % C)] +=
                                 x[0][i] / static_cast<double>(pixels);
                           }
                           return y;
                         },
                     .integers = false,
                     .nan = shape.size() > 0,
                     .terms = {pixels, 1},
                     .flops = count(shape)});
  }
}

}  // namespace hs::test
