#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/random.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/examples/naive.h"
#include "kernels/examples/register.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"

namespace hs::examples::conv2d_rows {

struct Sizes {
  Shape x;
  int64_t OC;
  Conv2dOptions options;

  int64_t K() const { return options.kernel_h * options.kernel_w * x[3]; }
  int64_t OH() const { return (x[1] + 2 * options.padding - options.kernel_h) / options.stride + 1; }
  int64_t OW() const { return (x[2] + 2 * options.padding - options.kernel_w) / options.stride + 1; }
  int64_t pixels() const { return x[0] * OH() * OW(); }
  bool nan() const { return options.stride == 1 && x[0] > 0; }  // a stride may skip pixels
};

enum class Then { nothing, relu, pool_relu };  // which op it is: conv2d(), conv2d_relu() or conv2d_pool_relu()

OpCase row_of(const char* name, const Sizes& c, Then then, Tolerance tolerance) {
  const Conv2dOptions& o = c.options;
  if (tolerance.absolute > 0) {  // else there is a bound by the terms: here, of the longest of the sums of products
    const int64_t taps = o.kernel_h * o.kernel_w;
    tolerance.absolute +=
        tolerance::walk(std::max({c.K() + 1, taps * c.OC, c.pixels()}), tolerance::rms * tolerance::rms);
  }
  return {.name = fmt::format("{} {} {}x{} ->{} stride {} padding {}", name, c.x.to_string(), o.kernel_h, o.kernel_w,
                              c.OC, o.stride, o.padding),
          .shapes = {c.x, {c.K(), c.OC}, {c.OC}},
          .run =
              [o, then](const Inputs& in) {
                if (then == Then::pool_relu) return conv2d_pool_relu(in[0], in[1], in[2], o);
                return then == Then::relu ? conv2d_relu(in[0], in[1], in[2], o) : conv2d(in[0], in[1], in[2], o);
              },
          .forward = tolerance,
          .gradient = tolerance,
          .reference =
              [c, then](const std::vector<Numbers>& in) {
                Numbers y = naive_conv2d(in[0], in[1], in[2], c.x, c.OC, c.options);
                if (then == Then::pool_relu) y = naive_max_pool2d(y, {c.x[0], c.OH(), c.OW(), c.OC}, 2, 2);
                for (double& value : y) value = value < 0 && then != Then::nothing ? 0 : value;
                return y;
              },
          .kinked = then != Then::nothing,
          .nan = c.nan(),
          .flops = 2.0 * static_cast<double>(c.pixels() * c.K() * c.OC),
          .optional = {2}};
}

OpCase plain_row(const Sizes& c) {
  OpCase row = row_of("conv2d", c, Then::nothing, tolerance::gemm);
  row.terms = {c.K() + 1, c.options.kernel_h * c.options.kernel_w * c.OC, c.pixels(), c.pixels()};
  row.roundings = {1, 2, 1, 1};  // im2col stores the columns' gradients in 16 bits, then sums them
  // A weight may meet the padding's zeros, or not; AMX multiplies 16 channels of the next pixel by zeros where a stride
  // leaves a tap alone.
  const int64_t stride = c.options.stride, KW = c.options.kernel_w;
  const bool is_alone = c.x[3] == 16 && stride < KW && KW < 2 * stride;
  row.nan_in_place = is_alone ? size_t{0} : c.options.padding == 0 ? 3 : 1;
  return row;
}

OpCase relu_row(const Sizes& c) {
  OpCase row = row_of("conv2d with ReLU", c, Then::relu, tolerance::composed);
  row.roundings = {1, 2, 1, 1};  // as for conv2d
  return row;
}

OpCase pooled_row(const Sizes& c) {
  OpCase row = row_of("conv2d_pool_relu", c, Then::pool_relu, tolerance::composed);
  // On CUDA the others are three ops, unless a variant is forced (tests/cuda/conv2d_pool_relu.cpp); in 16 bits they
  // round before they pool, so that another pixel may win.
  const bool is_image = c.K() == 9 * c.x[3] && (c.x[3] == 1 || c.x[3] == 3);
  row.cuda = is_image || (c.x[3] % 16 == 0 && c.OC % 16 == 0);
  row.nan = c.nan() && c.OH() % 2 == 0 && c.OW() % 2 == 0;
  return row;
}

const Examples rows([](Table& table) {
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
      {{0, 5, 5, 16}, 16, {.padding = 1}},
  };
  for (const Sizes& c : rows) table.push_back(plain_row(c));
  const Sizes with_relu[] = {
      {{17, 9, 9, 1}, 32, {}},  // conv1 of mnist_cnn_large
      {{2, 5, 4, 3}, 5, {.padding = 1}},
      {{3, 6, 7, 2}, 3, {.stride = 2}},
      {{2, 5, 6, 3}, 48, {.padding = 1}},  // few outputs: none so near zero that a small step crosses it
      {{4, 7, 7, 32}, 64, {}},
      {{0, 5, 5, 2}, 3, {}},
  };
  for (const Sizes& c : with_relu) table.push_back(relu_row(c));
  // The first layer of a network: only the weights get a gradient, the image needs none. 288 maxima of sums of 9
  // products, of about 1.25, are multiplied and added.
  Tolerance sums = tolerance::composed;
  sums.absolute += tolerance::walk(288, 1.25 * tolerance::rms);
  table.push_back({.name = "conv2d of a constant image, after ReLU and pooling",
                   .shapes = {{9, 32}, {288, 16}},
                   .run = {[](const Inputs& in) {
                     const OpCase image{.name = "image", .shapes = {{3, 10, 10, 1}}, .run = nullptr};
                     const Tensor x = make_inputs(image, in[0].dtype())[0].to(in[0].device());
                     const Tensor hidden = relu(max_pool2d(conv2d(x, in[0], {}), 2, 2));
                     return conv2d(hidden, in[1], {});
                   }},
                   .forward = sums,
                   .gradient = sums,
                   .half = false,  // rounding to 16 bits may change which pixel is the maximum of its window
                   .integers = false,
                   .kinked = true,
                   .nan = false});
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
  for (const Sizes& c : pooled) table.push_back(pooled_row(c));
  for (const auto& [shape, OC] : {std::pair{Shape{2, 6, 6, 16}, 16}, {{1, 7, 6, 3}, 5}}) {
    table.push_back({.name = fmt::format("conv2d_pool_relu and dropout {} ->{}", shape.to_string(), OC),
                     .shapes = {shape, {9 * shape[3], OC}, {OC}},
                     .run = {[](const Inputs& x) {
                       return conv2d_pool_relu(x[0], x[1], x[2], {}, {0.5, {42, RandomPurpose::dropout, 3, 7, 0}});
                     }},
                     .forward = tolerance::composed,
                     .gradient = tolerance::composed,
                     .cuda = shape[3] % 16 == 0,
                     .kinked = true,
                     .nan = false,
                     .optional = {2}});
  }
});

// `room`: how many pixels more than the kernel has the image at least has each way.
Sizes some_sizes(Draw& draw, int64_t room) {
  const bool is_wide = draw.coin();  // as many channels as fast variants want
  const int64_t side = draw.pick<int64_t>({1, 3, 3, 3, 5}), KW = draw.pick<int64_t>({side, side, 2});
  const auto channels = [&] { return is_wide ? draw.pick<int64_t>({16, 32, 32, 48}) : draw.positive(20); };
  Sizes c{{}, channels(), {.kernel_h = side, .kernel_w = KW, .stride = draw.pick<int64_t>({1, 1, 1, 2, 3})}};
  c.options.padding = draw.pick<int64_t>({0, 0, side / 2, 1});
  const int64_t most = draw.pick<int64_t>({3, 5, 7}) + (room > 0 ? 0 : draw.pick<int64_t>({0, 0, 16}));
  c.x = {draw.size(3), draw.size(most, side + room), draw.size(most, KW + room), channels()};
  return c;
}
const Examples drawn([](Draw& draw) { return plain_row(some_sizes(draw, 0)); });
const Examples drawn_with_relu([](Draw& draw) { return relu_row(some_sizes(draw, 0)); });
const Examples drawn_pooled([](Draw& draw) {
  Sizes c = some_sizes(draw, 1);
  c.options.stride = 1;
  return pooled_row(c);
});

// Layers of the models: mnist_cnn, mnist_cnn_large, deep_cnn: image, channels in and out. The first layer of a model
// needs no dx.
constexpr std::array<int64_t, 3> layers[] = {{28, 1, 32}, {13, 32, 64}, {26, 32, 64}};

const Examples timed([](int64_t batch) {
  std::vector<TimedCase> cases;
  for (const auto& [side, C, OC] : layers) {
    TimedCase layer{.op = "conv2d",
                    .shapes = {{batch, side, side, C}, {9 * C, OC}, {OC}},
                    .slots = {&conv2d_forward},
                    .autocast = true};
    cases.push_back(layer);
    layer.slots = {&conv2d_backward};
    layer.leaves = C == 1 ? 2 : 3;
    // Pooling and ReLU after a convolution leave most of dy zero, and some variants skip zeros.
    for (const auto& [zeros, remark] : {std::pair(0.0, ", dense"), {0.875, ", 7/8 zeros"}}) {
      layer.zeros = zeros;
      layer.remark = remark;
      cases.push_back(layer);
    }
  }
  for (const auto& [side, C, OC] : layers) {
    cases.push_back({.op = "conv2d_pool_relu",
                     .shapes = {{batch, side, side, C}, {9 * C, OC}, {OC}},
                     .slots = {&conv2d_pool_relu_forward, &conv2d_pool_relu_backward},
                     .leaves = C == 1 ? size_t{2} : size_t{3},
                     .autocast = true});
  }
  return cases;
});

}  // namespace hs::examples::conv2d_rows
