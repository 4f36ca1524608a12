#include "tests/op_table/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>

#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/optim.h"
#include "engine/random.h"
#include "engine/slots.h"
#include "kernels/augment/augment.h"
#include "kernels/bias_add/bias_add.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/gather_batch/gather_batch.h"
#include "kernels/linear/linear.h"
#include "kernels/log_step/log_step.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "tests/op_table/groups.h"
#include "tests/op_table/naive.h"

namespace hs::test {
namespace {

double count(const Shape& shape) { return static_cast<double>(shape.size()); }

void add_elementwise(Table& table) {
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{0, 4}, Shape{17, 33, 2}, Shape{40001}}) {
    const std::string at = shape.to_string();
    table.push_back({.name = "add " + at,
                     .shapes = {shape, shape},
                     .run = [](const Inputs& in) { return add(in[0], in[1]); },
                     .reference = elementwise([](double a, double b) { return a + b; }),
                     .flops = count(shape),
                     .same_on_devices = true});
    table.back().forward = tolerance::two_roundings;  // the f64 reference is not rounded to f32
    table.push_back({.name = "mul " + at,
                     .shapes = {shape, shape},
                     .run = [](const Inputs& in) { return mul(in[0], in[1]); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::two_roundings,
                     .reference = elementwise([](double a, double b) { return a * b; }),
                     .flops = count(shape),
                     .same_on_devices = true});
    table.push_back({.name = "scale by 0.5 " + at,
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return scale(in[0], 0.5); },
                     .reference = elementwise([](double x) { return 0.5 * x; }),
                     .flops = count(shape),
                     .same_on_devices = true});
    table.push_back({.name = "relu " + at,
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return relu(in[0]); },
                     .reference = elementwise([](double x) { return std::max(x, 0.0); }),
                     .fill = Fill::spaced,
                     .flops = count(shape),
                     .same_on_devices = true});
    table.push_back({.name = "reshape " + at,
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return in[0].reshape({in[0].size()}); },
                     .reference = elementwise([](double x) { return x; })});
    table.push_back({.name = "accumulate " + at,
                     .shapes = {shape, shape},
                     .run =
                         [](const Inputs& in) {
                           Tensor y = in[0].clone();
                           accumulate({in[1], y});
                           return y;
                         },
                     .forward = tolerance::two_roundings,
                     .reference = elementwise([](double a, double b) { return a + b; }),
                     .differentiable = false,
                     .flops = count(shape),
                     .same_on_devices = true});
  }
  table.push_back({.name = "scale by 1/3 (7)",
                   .shapes = {{7}},
                   .run = [](const Inputs& in) { return scale(in[0], 1.0 / 3); },
                   .forward = tolerance::two_roundings,
                   .gradient = tolerance::two_roundings,
                   .reference = elementwise([](double x) { return x / 3; }),
                   .integers = false,
                   .flops = 7,
                   .same_on_devices = true});
  table.push_back({.name = "cast to f16 and back (5, 7)",
                   .shapes = {{5, 7}},
                   .run = [](const Inputs& in) { return cast(cast(in[0], DType::f16), in[0].dtype()); },
                   .reference = elementwise([](double x) { return to_float(to_half(static_cast<float>(x))); }),
                   .half = false,
                   .differentiable = false,
                   .same_on_devices = true});
  table.push_back({.name = "cast to bf16 and back (5, 7)",
                   .shapes = {{5, 7}},
                   .run = [](const Inputs& in) { return cast(cast(in[0], DType::bf16), in[0].dtype()); },
                   .reference = elementwise([](double x) { return to_float(to_bfloat16(static_cast<float>(x))); }),
                   .half = false,
                   .differentiable = false,
                   .same_on_devices = true});
  for (const double rate : {0.5, 0.25, 0.1}) {
    const RandomStream stream{42, RandomPurpose::dropout, 3, 7, 0};
    table.push_back({.name = fmt::format("dropout {} (9, 123)", rate),
                     .shapes = {{9, 123}},
                     .run = [=](const Inputs& in) { return dropout(in[0], rate, stream); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::two_roundings,
                     .reference =
                         [=](const std::vector<Numbers>& in) {
                           Numbers y = in[0];
                           const double rounded = std::round(rate * 65536) / 65536;
                           for (size_t i = 0; i < y.size(); ++i) {
                             const uint32_t word = random_bits(stream, i / 2);
                             const double draw = (i % 2 == 0 ? word % 65536 : word / 65536) / 65536.0;
                             y[i] = draw >= rounded ? y[i] / (1 - rounded) : 0;
                           }
                           return y;
                         },
                     .integers = rate == 0.5,
                     .nan = false,
                     .flops = 9 * 123,
                     .same_on_devices = true});
  }
}

void add_reductions(Table& table) {
  for (const Shape& shape : {Shape{1}, Shape{3}, Shape{1025}, Shape{7, 10007}}) {
    const auto total = [](const std::vector<Numbers>& in) {
      double sum = 0;
      for (const double x : in[0]) sum += x;
      return Numbers{sum};
    };
    table.push_back({.name = "sum " + shape.to_string(),
                     .shapes = {shape},
                     .run = [](const Inputs& in) { return sum(in[0]); },
                     .forward = tolerance::sum,
                     .reference = total,
                     .terms = {1, 1},
                     .flops = count(shape)});
    table.push_back(
        {.name = "mean " + shape.to_string(),
         .shapes = {shape},
         .run = [](const Inputs& in) { return mean(in[0]); },
         .forward = tolerance::sum,
         .gradient = tolerance::two_roundings,
         .reference =
             [=](const std::vector<Numbers>& in) { return Numbers{total(in)[0] / static_cast<double>(in[0].size())}; },
         .integers = false,
         .terms = {1, 1},
         .flops = count(shape)});
  }
  for (const Shape& shape : {Shape{4, 7}, Shape{2, 3, 4, 5}, Shape{1, 1}, Shape{0, 3}, Shape{1025, 17}}) {
    const int64_t C = shape.back();
    table.push_back({.name = "bias_add " + shape.to_string(),
                     .shapes = {shape, {C}},
                     .run = [](const Inputs& in) { return bias_add(in[0], in[1]); },
                     .forward = tolerance::two_roundings,
                     .gradient = tolerance::sum,
                     .reference =
                         [](const std::vector<Numbers>& in) {
                           Numbers y = in[0];
                           for (size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % in[1].size()];
                           return y;
                         },
                     .nan = shape.size() > 0,
                     .terms = {1, 1, 1},
                     .flops = count(shape)});
  }
}

void add_matrix_products(Table& table) {
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
                     .run =
                         [](const Inputs& x) {
                           Tensor dx = x[0].empty_like(), dweight = x[1].empty_like();
                           Tensor dbias = Tensor::empty({x[1].shape()[1]}, x[0].dtype(), x[0].device());
                           linear_backward({x[0], x[1], x[2], false, dx, dweight, dbias});
                           return dweight;
                         },
                     .forward = tolerance::gemm,
                     .cuda = out <= 16,
                     .differentiable = false,
                     .nan = false,
                     .terms = {N},
                     .flops = 6.0 * static_cast<double>(N * in * out)});
  }
  for (const auto& [N, in, hidden, out] : {std::array<int64_t, 4>{5, 7, 3, 4}, {1, 1, 1, 1}, {19, 33, 130, 10}}) {
    table.push_back({.name = fmt::format("feed_forward {}x{}x{}x{}", N, in, hidden, out),
                     .shapes = {{N, in}, {in, hidden}, {hidden}, {hidden, out}, {out}},
                     .run = [](const Inputs& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4]); },
                     .forward = tolerance::composed,
                     .gradient = tolerance::composed,
                     .reference =
                         [=](const std::vector<Numbers>& x) {
                           Numbers h = naive_gemm(x[0], x[1], x[2], N, hidden, in, {});
                           for (double& value : h) value = std::max(value, 0.0);
                           return naive_gemm(h, x[3], x[4], N, out, hidden, {});
                         },
                     .nan = hidden > 1,  // the ReLU stops the only hidden number of the smallest row
                     .flops = 2.0 * static_cast<double>(N * hidden * (in + out)),
                     .roundings = {2, 2, 2, 2, 2, 1}});  // the hidden layer and its gradient are 16 bits wide
  }
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
}

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
}

std::vector<int32_t> some_labels(int64_t N, int64_t classes) {
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < N; ++n) labels.push_back(static_cast<int32_t>(n * 7 % classes));
  return labels;
}

void add_losses(Table& table) {
  for (const Shape& shape : {Shape{5, 10}, Shape{1, 2}, Shape{3, 1}, Shape{64, 10}, Shape{7, 131}}) {
    const auto labels = some_labels(shape[0], shape[1]);
    const Tensor label_tensor = Tensor::from(labels, {shape[0]});
    for (const float smoothing : {0.0f, 0.1f}) {
      const std::string at = shape.to_string() + (smoothing > 0 ? " smoothed" : "");
      table.push_back(
          {.name = "softmax_cross_entropy " + at,
           .shapes = {shape},
           .run =
               [=](const Inputs& in) {
                 return softmax_cross_entropy(in[0], label_tensor.to(in[0].device()), {}, smoothing);
               },
           .forward = tolerance::cross_entropy,
           .gradient = tolerance::cross_entropy_gradient,
           .reference =
               [=](const std::vector<Numbers>& in) { return naive_cross_entropy(in[0], labels, shape[1], smoothing); },
           .integers = false,
           .flops = 4 * count(shape)});
      table.push_back({.name = "gradient of softmax_cross_entropy, known in advance " + at,
                       .shapes = {shape},
                       .run =
                           [=](const Inputs& in) {
                             const Tensor dloss = on_test_device(Tensor::from(std::vector<float>{0.5f}, {}));
                             const Tensor label = label_tensor.to(in[0].device());
                             Tensor loss = dloss.empty_like(), dlogits = in[0].empty_like();
                             softmax_cross_entropy_with_gradient({in[0], label, dloss, loss, dlogits, smoothing});
                             return dlogits;
                           },
                       .forward = tolerance::cross_entropy_gradient,
                       .reference =
                           [=](const std::vector<Numbers>& in) {
                             Numbers dz;
                             for (size_t n = 0; n < labels.size(); ++n) {
                               const auto row = in[0].begin() + static_cast<int64_t>(n) * shape[1];
                               double sum = 0;
                               for (int64_t j = 0; j < shape[1]; ++j) sum += std::exp(row[j]);
                               for (int64_t j = 0; j < shape[1]; ++j) {
                                 const double others = smoothing / static_cast<double>(shape[1]);
                                 const double target = others + (j == labels[n] ? 1 - smoothing : 0);
                                 dz.push_back((std::exp(row[j]) / sum - target) / 2 / static_cast<double>(shape[0]));
                               }
                             }
                             return dz;
                           },
                       .f64 = false,
                       .differentiable = false,
                       .integers = false});
    }
    table.push_back({.name = "argmax_matches " + shape.to_string(),
                     .shapes = {shape},
                     .run =
                         [=](const Inputs& in) {
                           Tensor matches = Tensor::empty({}, DType::i32, in[0].device());
                           argmax_matches({in[0], label_tensor.to(in[0].device()), matches});
                           return matches;
                         },
                     .reference =
                         [=](const std::vector<Numbers>& in) {
                           double correct = 0;
                           for (size_t n = 0; n < labels.size(); ++n) {
                             const auto row = in[0].begin() + static_cast<int64_t>(n) * shape[1];
                             correct += std::max_element(row, row + shape[1]) - row == labels[n];
                           }
                           return Numbers{correct};
                         },
                     .differentiable = false,
                     .nan = false});
  }
}

// Logits of 16 times the inputs: they differ from the label's by up to 32, so probabilities are near 1 or far below the
// roundoff of every type. 16 is a power of two, so everything except the loss itself is exact. The gradient of an input
// is 16 times that of its logit, and so is its absolute tolerance.
void add_decided_losses(Table& table) {
  for (const Shape& shape : {Shape{40, 2}, Shape{24, 10}}) {
    const auto labels = some_labels(shape[0], shape[1]);
    const Tensor label_tensor = Tensor::from(labels, {shape[0]});
    const Tolerance& logit = tolerance::cross_entropy_gradient;
    table.push_back(
        {.name = "softmax_cross_entropy, logits up to 16 " + shape.to_string(),
         .shapes = {shape},
         .run =
             [=](const Inputs& in) { return softmax_cross_entropy(scale(in[0], 16), label_tensor.to(in[0].device())); },
         .forward = tolerance::cross_entropy,
         .gradient = {logit.relative, 16 * logit.absolute, 0},
         .reference =
             [=](const std::vector<Numbers>& in) {
               Numbers logits = in[0];
               for (double& z : logits) z *= 16;
               return naive_cross_entropy(logits, labels, shape[1]);
             },
         .integers = false});
  }
}

// Three samples from position 2 + 4 of epoch 3 on, of a set of ten images: labels, indices, the epoch, the pixels.
void add_recorded_steps(Table& table) {
  constexpr int64_t count = 10, N = 3, position = 6;
  constexpr int32_t epoch = 3;
  constexpr uint64_t seed = 9;
  for (const int64_t bytes : {15, 16}) {
    for (const bool shuffle : {true, false}) {
      const auto pixel = [bytes](int64_t sample, int64_t i) { return static_cast<uint8_t>((sample * bytes + i) * 7); };
      table.push_back({.name = fmt::format("gather_batch, images of {}{}", bytes, shuffle ? ", shuffled" : ""),
                       .shapes = {},
                       .run =
                           [=](const Inputs&) {
                             std::vector<uint8_t> pixels;
                             std::vector<int32_t> labels;
                             for (int64_t n = 0; n < count; ++n) {
                               for (int64_t i = 0; i < bytes; ++i) pixels.push_back(pixel(n, i));
                               labels.push_back(static_cast<int32_t>(100 + n));
                             }
                             const auto integers = [](const std::vector<int32_t>& values) {
                               return on_test_device(Tensor::from(values, {static_cast<int64_t>(values.size())}));
                             };
                             Tensor images = on_test_device(Tensor::zeros({N, 1, bytes, 1}, DType::u8));
                             Tensor label = integers({0, 0, 0}), samples = integers({0, 0, 0});
                             Tensor epoch_out = on_test_device(Tensor::zeros({}, DType::i32));
                             gather_batch({on_test_device(Tensor::from(pixels, {count, 1, bytes, 1})), integers(labels),
                                           integers({epoch, 2, 0}), shuffle, seed, 4, images, label, samples,
                                           epoch_out});
                             std::vector<float> all;
                             for (const Tensor& tensor : {label, samples, epoch_out}) {
                               for (const int32_t value : tensor.to_vector<int32_t>()) {
                                 all.push_back(static_cast<float>(value));
                               }
                             }
                             for (const uint8_t value : images.to_vector<uint8_t>()) all.push_back(value);
                             const auto size = static_cast<int64_t>(all.size());
                             return Tensor::from(all, {size});
                           },
                       .reference =
                           [=](const std::vector<Numbers>&) {
                             const Permutation order(count, {seed, RandomPurpose::shuffle, 0, epoch, 0});
                             Numbers labels, samples, pixels;
                             for (int64_t p = position; p < position + N; ++p) {
                               const auto n = shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(p))) : p;
                               labels.push_back(static_cast<double>(100 + n));
                               samples.push_back(static_cast<double>(n));
                               for (int64_t i = 0; i < bytes; ++i) pixels.push_back(pixel(n, i));
                             }
                             labels.insert(labels.end(), samples.begin(), samples.end());
                             labels.push_back(epoch);
                             labels.insert(labels.end(), pixels.begin(), pixels.end());
                             return labels;
                           },
                       .f64 = false,
                       .half = false,
                       .differentiable = false,
                       .integers = false,
                       .nan = false});
    }
  }
  table.push_back({.name = "log_step",
                   .shapes = {},
                   .run =
                       [](const Inputs&) {
                         const auto scalar = [](float value) {
                           return on_test_device(Tensor::from(std::vector<float>{value}, {}));
                         };
                         const Tensor place = on_test_device(Tensor::from(std::vector<int32_t>{0, 0, 2}, {3}));
                         Tensor losses = on_test_device(Tensor::zeros({5}, DType::f32)), scales = losses.clone();
                         log_step({scalar(7), scalar(8), place, 1, losses, scales});
                         log_step({scalar(9), Tensor(), place, 2, losses, no_tensor()});
                         std::vector<float> all = losses.to_vector<float>();
                         for (const float scale : scales.to_vector<float>()) all.push_back(scale);
                         return Tensor::from(all, {10});
                       },
                   .reference = [](const std::vector<Numbers>&) { return Numbers{0, 0, 0, 7, 9, 0, 0, 0, 8, 0}; },
                   .f64 = false,
                   .half = false,
                   .differentiable = false,
                   .integers = false,
                   .nan = false});
}

std::vector<uint8_t> every_byte() {
  std::vector<uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

void add_images(Table& table) {
  table.push_back(
      {.name = "normalize_image, all 256 values",
       .shapes = {},
       .run =
           [](const Inputs&) {
             return normalize_image(on_test_device(Tensor::from(every_byte(), {1, 16, 16, 1})), {0.1307f, 0.3081f});
           },
       .forward = {1e-6, 1e-7, 0},
       .reference =
           [](const std::vector<Numbers>&) {
             Numbers y;
             for (int i = 0; i < 256; ++i) y.push_back((i / 255.0 - double{0.1307f}) / double{0.3081f});
             return y;
           },
       .f64 = false,
       .half = false,
       .differentiable = false,
       .integers = false,
       .nan = false,
       .flops = 256 * 3,
       .same_on_devices = true});
  // Rounded once, as by a cast of the f32 result.
  for (const DType type : {DType::f16, DType::bf16}) {
    table.push_back({.name = fmt::format("normalize_image to {}, all 256 values", name(type)),
                     .shapes = {},
                     .run =
                         [=](const Inputs&) {
                           const Tensor pixels = on_test_device(Tensor::from(every_byte(), {1, 16, 16, 1}));
                           return cast(normalize_image(pixels, {0.1307f, 0.3081f}, type), DType::f32);
                         },
                     .reference =
                         [=](const std::vector<Numbers>&) {
                           Numbers y;
                           for (const uint8_t pixel : every_byte()) {
                             const float value = normalized(pixel, {0.1307f, 0.3081f});
                             y.push_back(type == DType::f16 ? to_float(to_half(value)) : to_float(to_bfloat16(value)));
                           }
                           return y;
                         },
                     .f64 = false,
                     .half = false,
                     .differentiable = false,
                     .integers = false,
                     .nan = false});
  }
  for (const Shape& shape : {Shape{5, 7, 11, 1}, Shape{3, 9, 6, 3}, Shape{2, 1, 1, 1}, Shape{0, 4, 4, 1}}) {
    std::vector<uint8_t> pixels;
    for (int64_t i = 0; i < shape.size(); ++i) {
      pixels.push_back(static_cast<uint8_t>(random_bits({.seed = 3}, static_cast<uint64_t>(i))));
    }
    std::vector<int32_t> samples;
    for (int32_t n = 0; n < shape[0]; ++n) samples.push_back(70000 * n + 1);
    constexpr int32_t epoch = 4;
    constexpr uint64_t seed = 9;
    table.push_back({.name = "augment_image " + shape.to_string(),
                     .shapes = {},
                     .run =
                         [=](const Inputs&) {
                           const auto input = [](const auto& tensor) { return on_test_device(tensor); };
                           const Tensor changed = augment_image(
                               input(Tensor::from(pixels, shape)), input(Tensor::from(samples, {shape[0]})),
                               input(Tensor::from(std::vector<int32_t>{epoch}, {})),
                               {.shift = 2, .rotate = 30, .cutout = 3, .flip = true}, seed);
                           return normalize_image(changed, {0, 1 / 255.0f});  // as f32
                         },
                     // Positions are rounded to 1/256 of a pixel and results to integers: two half steps of a ramp of
                     // 255, half a step of the result, and one for everything else.
                     .forward = {0, 2.5, 0},
                     .reference =
                         [=](const std::vector<Numbers>&) {
                           Numbers y;
                           const int64_t bytes = shape[1] * shape[2] * shape[3];
                           for (int64_t n = 0; n < shape[0]; ++n) {
                             const ImageWarp warp =
                                 draw_warp({2, 3, 357913941, true, seed}, samples[static_cast<size_t>(n)], epoch,
                                           static_cast<int32_t>(shape[1]), static_cast<int32_t>(shape[2]));
                             const Numbers image(pixels.begin() + n * bytes, pixels.begin() + (n + 1) * bytes);
                             for (const double value : naive_warp(image, {shape[1], shape[2], shape[3]}, warp)) {
                               y.push_back(value);
                             }
                           }
                           return y;
                         },
                     .f64 = false,
                     .half = false,
                     .differentiable = false,
                     .integers = false,
                     .nan = false,
                     .flops = 30 * count(shape),
                     .same_on_devices = true});
  }
  // Bytes per image: 1, 15, and 16, which a GPU moves at once.
  for (const int64_t bytes : {1, 15, 16}) {
    table.push_back({.name = "gather_samples, images of " + std::to_string(bytes),
                     .shapes = {},
                     .run =
                         [bytes](const Inputs&) {
                           std::vector<uint8_t> pixels;
                           for (int64_t i = 0; i < 10 * bytes; ++i) pixels.push_back(static_cast<uint8_t>(i * 7));
                           const Tensor set = on_test_device(Tensor::from(pixels, {10, 1, bytes, 1}));
                           const Tensor samples = on_test_device(Tensor::from(std::vector<int32_t>{9, 0, 4, 4}, {4}));
                           Tensor out = on_test_device(Tensor::zeros({4, 1, bytes, 1}, DType::u8));
                           gather_samples({set, samples, out});
                           return normalize_image(out, {0, 1.0f / 255});
                         },
                     .forward = {1e-6, 0, 0},
                     .reference =
                         [bytes](const std::vector<Numbers>&) {
                           Numbers y;
                           for (const int64_t sample : {9, 0, 4, 4}) {
                             for (int64_t i = 0; i < bytes; ++i)
                               y.push_back(static_cast<uint8_t>((sample * bytes + i) * 7));
                           }
                           return y;
                         },
                     .f64 = false,
                     .half = false,
                     .differentiable = false,
                     .integers = false,
                     .nan = false,
                     .same_on_devices = true});
  }
}

}  // namespace

bool is_whole_table() { return std::getenv("HALFSTEP_ROWS") == nullptr; }

const std::vector<OpCase>& op_table() {
  static const Table table = [] {
    Table rows;
    add_elementwise(rows);
    add_reductions(rows);
    add_matrix_products(rows);
    add_convolutions(rows);
    add_pooling(rows);
    add_losses(rows);
    add_decided_losses(rows);
    add_optimizer_steps(rows);
    add_images(rows);
    add_recorded_steps(rows);
    if (!is_whole_table()) {
      const std::string wanted = std::getenv("HALFSTEP_ROWS");
      std::erase_if(rows, [&](const OpCase& row) { return row.name.find(wanted) == std::string::npos; });
      if (rows.empty()) fail(ExitCode::usage, "HALFSTEP_ROWS={}: no row of the op table has this in its name", wanted);
    }
    return rows;
  }();
  return table;
}

namespace {
Device test_device_ = Device::cpu;
}

void set_test_device(Device device) { test_device_ = device; }
Device test_device() { return test_device_; }
Tensor on_test_device(const Tensor& tensor) { return tensor.to(test_device_); }

namespace {

// The first numbers of the k-th input's stream, kept: every run of every row asks for the same ones.
const std::vector<uint32_t>& first_bits(size_t k, uint64_t size, const RandomStream& stream) {
  static std::map<size_t, std::vector<uint32_t>> known;
  std::vector<uint32_t>& bits = known[k];
  for (uint64_t i = bits.size(); i < std::min<uint64_t>(size, 1 << 16); ++i) bits.push_back(random_bits(stream, i));
  return bits;
}

}  // namespace

Inputs make_inputs(const OpCase& row, DType dtype, bool integers) {
  Inputs inputs;
  for (size_t k = 0; k < row.shapes.size(); ++k) {
    const uint64_t size = static_cast<uint64_t>(row.shapes[k].size());
    const RandomStream stream{2026, RandomPurpose::init, static_cast<uint32_t>(k), 99, 0};
    const std::vector<uint32_t>& first = first_bits(k, size, stream);
    const Permutation shuffled(std::max<uint64_t>(size, 1), stream);
    Numbers values(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint32_t bits = i < first.size() ? first[i] : random_bits(stream, i);
      if (integers) {
        values[i] = static_cast<double>(bits % 9) - 4;
      } else if (row.fill == Fill::spaced) {
        const double place = static_cast<double>(shuffled(i));
        const double spacing = std::min(0.1, 10.0 / static_cast<double>(size));
        values[i] = (place - std::floor(static_cast<double>(size) / 2) + 0.5) * spacing;
      } else {
        values[i] = 2.0 * to_unit_float(bits) - 1;
      }
    }
    std::vector<float> floats(values.begin(), values.end());
    if (dtype == DType::f64) {
      inputs.push_back(Tensor::from(std::vector<double>(floats.begin(), floats.end()), row.shapes[k]));
    } else {
      inputs.push_back(Tensor::from(floats, row.shapes[k]));
    }
  }
  return inputs;
}

Numbers to_numbers(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  if (tensor.dtype() == DType::i32) {
    const auto values = tensor.to_vector<int32_t>();
    return {values.begin(), values.end()};
  }
  const auto values = cast(tensor, DType::f32).to_vector<float>();
  return {values.begin(), values.end()};
}

}  // namespace hs::test
