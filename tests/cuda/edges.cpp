// What the op table does not reach of the CUDA kernels: operands that start anywhere in memory, tails, more work than
// threads, sums of many terms, values that are not finite. Where the result is exact, or both devices do the same
// arithmetic, they must agree bit for bit. The optimizer's kernels: tests/cuda/optimizer.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/module.h"
#include "engine/random.h"
#include "kernels/augment/augment.h"
#include "kernels/batch_norm2d/batch_norm2d.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/normalize_image/normalize_image.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "tests/support/checks.h"
#include "tests/support/conv2d_not_finite.h"
#include "tests/support/emulated.h"
#include "tests/support/random_tensor.h"

namespace hs::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

Tensor number(float value) { return Tensor::from(std::vector<float>{value}, {}); }

// `shifted`: one element into its memory, where 16 bytes may not be read or written at once.
Tensor empty_on_device(const Shape& shape, DType dtype, bool shifted = false) {
  const int64_t shift = shifted ? 1 : 0;
  return Tensor::empty({shape.size() + shift}, dtype, Device::cuda).slice(shift, shape);
}
Tensor on_device(const Tensor& x, bool shifted = false) {
  Tensor copy = empty_on_device(x.shape(), x.dtype(), shifted);
  copy.copy_from(x);
  return copy;
}
bool same_on_device(const Tensor& host, const Tensor& device) { return same_bytes(host, device.to(Device::cpu)); }

// Calls body(dtype, shifted) for each type, aligned and not.
template <class Body>
void for_each_placement(const Body& body) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool shifted : {false, true}) {
      INFO(std::string(name(dtype)), shifted ? ", shifted" : "");
      body(dtype, shifted);
    }
  }
}

// A row of these tests alone, in every type, aligned or not: exact on whole numbers.
void check_exact(const OpCase& row) {
  for_each_placement([&](DType dtype, bool shifted) {
    RowRun how = run_on(Device::cuda, dtype);
    how.unaligned = shifted;
    guard_row(row, how, [&] { check_integers(row, how); });
  });
}

// In f32, or in f64.
Tensor column_sums(const Tensor& x) {
  Tensor sum = Tensor::empty({x.shape().back()}, x.dtype() == DType::f64 ? DType::f64 : DType::f32, x.device());
  column_sum({x, false, sum});
  return sum;
}

TEST_CASE("bias_add and column_sum: matrices of all proportions, whichever block comes last") {
  const RowRun f32 = run_on(Device::cuda, DType::f32);
  for (const Shape& shape :
       {Shape{1, 1}, {64, 10}, {5, 500}, {1000, 16}, {3000, 33}, {3000, 20}, {20001, 1}, {9000, 3}, {2, 4000}}) {
    check_exact({.name = "bias_add " + shape.to_string(),
                 .shapes = {shape, {shape.back()}},
                 .run = [](const Inputs& in) { return bias_add(in[0], in[1]); }});
    const OpCase sums{.name = "column_sum " + shape.to_string(),
                      .shapes = {shape},
                      .run = [](const Inputs& in) { return column_sums(in[0]); },
                      .differentiable = false};
    check_exact(sums);
    const EveryOrder in_every_order;
    guard_row(sums, f32, [&] { check_integers(sums, f32); });
  }
}

TEST_CASE("sums of many terms are trees: one chain of additions would be ten times outside of the tolerance") {
  const Shape shape{50000, 32};
  const Tensor x = random_tensor(shape, 3, 0, 1);  // all positive, so that partial sums grow
  Numbers columns(32), total(1);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double value = x.data<float>()[i];
    columns[static_cast<size_t>(i % 32)] += value;
    total[0] += value;
  }
  const Tensor sums = column_sums(x.to(Device::cuda));
  const Comparison each = compare(to_numbers(sums.to(Device::cpu)), columns, tolerance::sum);
  INFO("columns: ", each.summary);
  CHECK(each.passed);
  const Comparison all = compare(Numbers{sum(x.to(Device::cuda)).item()}, total, tolerance::sum);
  INFO("all: ", all.summary);
  CHECK(all.passed);
}

TEST_CASE("sum adds in the same order, aligned or not, and its gradient may begin anywhere") {
  const Poisoned poisoned;
  for_each_placement([&](DType dtype, bool shifted) {
    Tensor dx = empty_on_device({4099}, dtype, shifted);
    sum_backward({on_device(cast(number(1.25f), dtype)), 1.0 / 3, dx});
    CHECK(to_numbers(dx.to(Device::cpu)) == rounded_to(dtype, Numbers(4099, static_cast<float>(1.25 / 3))));
  });
  const Tensor x = random_tensor({50001}, 6);
  CHECK(sum(on_device(x)).item() == sum(on_device(x, true)).item());
}

TEST_CASE("dropout of any size, with the step on the device") {
  const Poisoned poisoned;
  for (const int64_t size : {0, 1, 3, 4, 7, 8, 9, 1023, 5003}) {
    check_exact({.name = "dropout of " + std::to_string(size), .shapes = {{size}}, .run = [](const Inputs& in) {
                   const Tensor step = Tensor::from(std::vector<int32_t>{11}, {}).to(in[0].device());
                   return dropout(in[0], 0.5, {99, RandomPurpose::dropout, 5, 3, 2}, step);
                 }});
  }
}

// Loss, gradient and count of correct rows against the f64 CPU kernel; a label outside the classes gives NaN.
void check_softmax(const Tensor& logits, const std::vector<int32_t>& labels, DType dtype, bool bad_label = false) {
  const Tensor z = cast(logits, dtype), label = Tensor::from(labels, {z.shape()[0]});
  const Tensor in = z.to(Device::cuda), label_in = label.to(Device::cuda);
  Tensor loss = empty_on_device({}, DType::f32), dz = in.empty_like();
  softmax_cross_entropy_forward({in, label_in, loss});
  CHECK(count_correct(in, label_in) == count_correct(cast(z, DType::f32), label));
  if (bad_label) {
    CHECK(std::isnan(loss.item()));
    return;
  }
  const Tensor dloss = Tensor::from(std::vector<float>{1}, {}), exact_z = cast(z, DType::f64);
  const Tensor dloss_in = dloss.to(Device::cuda);
  softmax_cross_entropy_backward({in, label_in, dloss_in, dz});
  Tensor same_loss = loss.empty_like(), same_dz = dz.empty_like();
  softmax_cross_entropy_with_gradient({in, label_in, dloss_in, same_loss, same_dz});
  CHECK(same_bytes(same_loss.to(Device::cpu), loss.to(Device::cpu)));
  CHECK(same_bytes(same_dz.to(Device::cpu), dz.to(Device::cpu)));
  Tensor exact_loss = Tensor::empty({}, DType::f64), exact_dz = exact_z.empty_like();
  softmax_cross_entropy_forward({exact_z, label, exact_loss});
  softmax_cross_entropy_backward({exact_z, label, cast(dloss, DType::f64), exact_dz});
  const CompareOptions options{.nan_expected = true};
  const auto check = [&](const Tensor& got, const Tensor& expected, const Tolerance& allowed) {
    const Comparison result = compare(to_numbers(got.to(Device::cpu)), to_numbers(expected), allowed, options);
    INFO(result.summary);
    CHECK(result.passed);
  };
  check(loss, exact_loss, tolerance::cross_entropy);
  check(dz, exact_dz, tolerance::rounded_to(dtype, tolerance::cross_entropy_gradient, false));
}

TEST_CASE("batch_norm2d, layer_norm and the loss join what all blocks have summed, whichever comes last") {
  const EveryOrder in_every_order;
  int rows = 0;
  for (const OpCase& row : op_table()) {
    const bool is_normalization = row.name.starts_with("batch_norm2d") || row.name.starts_with("layer_norm");
    if (!is_normalization || row.shapes[0].size() < 9000) continue;
    const RowRun how = run_on(Device::cuda, DType::f32);
    guard_row(row, how, [&] { check_close(row, how, reference_of(row, how), run_row(row, how), row.name); });
    ++rows;
  }
  CHECK((rows >= 8 || !is_whole_table()));
  check_softmax(random_tensor({700, 10}, 4), std::vector<int32_t>(700, 3), DType::f32);
}

TEST_CASE("softmax cross entropy: a loss whose gradient was announced has the bits of one told later, and no other") {
  const Tensor labels = Tensor::from(std::vector<int32_t>{1, 0, 2}, {3}).to(Device::cuda);
  const Tensor dloss = number(0.5f).to(Device::cuda), other = number(0.5f).to(Device::cuda);
  const auto gradient = [&](const Tensor& announced, const Tensor& given) {
    Tensor z = random_tensor({3, 3}, 12).to(Device::cuda);
    z.set_requires_grad(true);
    backward(softmax_cross_entropy(z, labels, announced), given);
    return z.grad().to_vector<float>();
  };
  CHECK(gradient(dloss, dloss) == gradient({}, dloss));
  CHECK_THROWS_WITH_AS(gradient(dloss, other),
                       "backward of softmax_cross_entropy: got another gradient than the one announced; pass the same",
                       Error);
  const AmbientScope scope;
  ambient().fuse = false;
  CHECK(gradient(dloss, other) == gradient({}, dloss));
}

TEST_CASE("softmax cross entropy: what is not finite, labels outside the classes, one class and many, ties") {
  const Poisoned poisoned;
  struct Special {
    std::vector<float> first_row;
    int32_t label;
  };
  const std::vector<Special> specials = {{{1, 2, 3}, 2},           {{inf, 2, 3}, 2},         {{-inf, 2, 3}, 2},
                                         {{-inf, 2, 3}, 0},        {{-inf, -inf, -inf}, 0},  {{nan, 1, 3}, 2},
                                         {{1, nan, 3}, 2},         {{-200, -201, -202}, 1},  {{1, 3, nan}, 2},
                                         {{nan, nan, nan}, 2},     {{3e4f, -3e4f, 3e4f}, 0}, {{3e4f, -3e4f, 3e4f}, 2},
                                         {{3e4f, -3e4f, 3e4f}, 1}, {{7, 0, -20}, 0},         {{7, 0, -20}, 1}};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    INFO(std::string(name(dtype)));
    for (const auto& [row, label] : specials) {
      INFO(row[0], " ", row[1], " ", row[2], ", label ", label);
      check_softmax(Tensor::from(std::vector<float>{row[0], row[1], row[2], 4, 5, 6}, {2, 3}), {label, 1}, dtype);
    }
    for (const int32_t bad : {-1, 3, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
      check_softmax(random_tensor({2, 3}, 1), {1, bad}, dtype, true);
    }
    // Fewer rows than a block of the loss has groups of lanes, and more; every number of lanes for a row; more classes
    // than lanes keep, in packs and not.
    for (const Shape& shape :
         {Shape{1, 1}, {2000, 1}, {64, 10}, {1639, 10}, {2049, 8}, {2049, 9}, {100, 17}, {17, 1000}, {9, 333}}) {
      INFO(shape.to_string());
      std::vector<int32_t> labels;
      for (int64_t n = 0; n < shape[0]; ++n) {
        labels.push_back(
            static_cast<int32_t>(random_bits({}, static_cast<uint64_t>(n)) % static_cast<uint32_t>(shape[1])));
      }
      check_softmax(random_tensor(shape, 10, -8, 8), labels, dtype);
      check_softmax(whole_numbers(shape, 11), labels, dtype);
      labels.back() = static_cast<int32_t>(shape[1]);
      check_softmax(whole_numbers(shape, 11), labels, dtype, true);
    }
  }
}

TEST_CASE("conv2d: one inf or NaN in dy, or in x, reaches the gradients, whichever gemm multiplies") {
  check_not_finite({{2, 6, 7, 8}, 16, {.padding = 1}}, Device::cuda);
}

// 9 taps of 4 channels are rows of 36 values, padded to 40: a tenth tap would be the pixel below the window, times
// zeros.
TEST_CASE("conv2d reads no pixel outside of a window: an inf reaches only the windows that hold it") {
  for (const int64_t C : {3, 4, 8, 12}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      INFO(C, " channels, ", std::string(name(dtype)));
      Tensor x = whole_numbers({1, 7, 6, C}, 1);
      for (int64_t i = x.size() - 6 * C; i < x.size(); ++i) x.mutable_data<float>()[i] = inf;  // the last row
      const Tensor y =
          conv2d(cast(x, dtype).to(Device::cuda), cast(whole_numbers({9 * C, 8}, 2), dtype).to(Device::cuda), {});
      const Numbers values = to_numbers(y.to(Device::cpu));  // (1, 5, 4, 8): its last row alone sees row 6
      for (size_t i = 0; i < values.size(); ++i) CHECK((i >= 4 * 4 * 8 || std::isfinite(values[i])));
    }
  }
}

// CUDA refuses a grid of no blocks, so that these would throw if they launched one.
TEST_CASE("kernels on empty tensors launch nothing") {
  for_each_placement([&](DType dtype, bool) {
    Tensor none = empty_on_device({0}, dtype), sum = empty_on_device({3}, dtype),
           scalar = cast(number(1), dtype).to(Device::cuda);
    cast(none, DType::f32);
    dropout(none, 0.5, {});
    CHECK(hs::sum(none).item() == 0);
    sum_backward({scalar, 1, none});
    bias_add(empty_on_device({3, 0}, dtype), none);
    column_sum({empty_on_device({3, 0}, dtype), false, none});
    column_sum({empty_on_device({0, 3}, dtype), false, sum});
    CHECK(to_numbers(sum) == Numbers(3));
    CHECK(count_correct(empty_on_device({0, 3}, dtype), empty_on_device({0}, DType::i32)) == 0);
  });
  normalize_image(empty_on_device({0, 4, 4, 1}, DType::u8), {});
  const Tensor rates = Tensor::zeros({step_rates}, DType::f32, Device::cuda);
  Tensor none = empty_on_device({0}, DType::f32);
  sgd_step({none, {}, rates, none, none});
  adam_step({none, {}, rates, none, none, none});
}

TEST_CASE("more work than threads: the loops go round") {
  const Poisoned poisoned;
  constexpr int64_t max_threads = 4096 * 256, C = 7;
  for (const bool shifted : {false, true}) {
    INFO("shifted: ", shifted);  // else a thread takes four elements at once
    const int64_t rows = max_threads * (shifted ? 1 : 4) / C + 901;
    const Tensor x = random_tensor({rows, C}, 1), bias = random_tensor({C}, 2), in = on_device(x, shifted);
    Tensor y = x.empty_like(), out = empty_on_device({rows, C}, DType::f32, shifted);
    const auto check = [&](const char* what) {
      INFO(what);
      CHECK(same_on_device(y, out));
    };
    bias_add_forward({x, bias, y}), bias_add_forward({in, bias.to(Device::cuda), out});
    check("bias_add");
    relu_forward({x, y}), relu_forward({in, out});
    check("relu");
    dropout_mask({x, 0.4, {}, {}, y}), dropout_mask({in, 0.4, {}, {}, out});
    check("dropout");
    sum_backward({number(3), 0.7, y}), sum_backward({number(3).to(Device::cuda), 0.7, out});
    check("sum_backward");
    const Tensor rates = Tensor::from(std::vector<float>{0.01f, 2, 3, 0.5f, 0, 0}, {step_rates});
    Tensor velocity = x.clone(), velocity_out = on_device(x, shifted);
    sgd_step({x, {0.9f, 0.1f}, rates, velocity, y});
    sgd_step({in, {0.9f, 0.1f}, rates.to(Device::cuda), velocity_out, out});
    check("sgd_step");
  }
  check_softmax(random_tensor({max_threads + 901, 2}, 11), std::vector<int32_t>(max_threads + 901, 1), DType::f32);
  const Shape shape{3, 700, 601, 1}, pooled{3, 699, 600, 1};
  const Tensor x = random_tensor(shape, 12), dy = random_tensor(pooled, 13);
  Tensor y = Tensor::empty(pooled, DType::f32), choice = Tensor::empty(pooled, DType::u8), dx = x.empty_like();
  Tensor out = empty_on_device(pooled, DType::f32), chosen = empty_on_device(pooled, DType::u8);
  Tensor din = empty_on_device(shape, DType::f32);
  max_pool2d_forward({x, 2, 1, y, choice}), max_pool2d_forward({on_device(x), 2, 1, out, chosen});
  max_pool2d_backward({dy, choice, 2, 1, dx}), max_pool2d_backward({on_device(dy), chosen, 2, 1, din});
  CHECK(same_on_device(y, out));
  CHECK(same_on_device(choice, chosen));
  CHECK(same_on_device(dx, din));
}

TEST_CASE("augment_image gives the CPU's pixels of more images than blocks, of the largest ones, and of none") {
  const Tensor epoch = Tensor::from(std::vector<int32_t>{INT32_MAX}, {});
  for (const Shape& shape : {Shape{4096 + 3, 2, 1, 1},
                             {2, max_augmented_side, 3, 1},
                             {2, 2, max_augmented_side, 3},
                             {3, 17, 7, 4},
                             {3, 0, 5, 1}}) {
    INFO(shape.to_string());
    std::vector<uint8_t> pixels(static_cast<size_t>(shape.size()));
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(random_bits({.seed = 2}, i));
    std::vector<int32_t> samples(static_cast<size_t>(shape[0]));
    for (size_t n = 0; n < samples.size(); ++n) samples[n] = static_cast<int32_t>(random_bits({.seed = 4}, n) >> 1);
    const auto changed = [&](Device device, const AugmentOptions& options) {
      const Tensor images = Tensor::from(pixels, shape).to(device);
      return augment_image(images, Tensor::from(samples, {shape[0]}).to(device), epoch.to(device), options, 11)
          .to(Device::cpu);
    };
    for (const AugmentOptions& options : {AugmentOptions{.shift = 512, .rotate = 180, .cutout = 512, .flip = true},
                                          {.shift = 2, .rotate = 10, .cutout = 3}}) {
      CHECK(same_bytes(changed(Device::cuda, options), changed(Device::cpu, options)));
    }
  }
}

// Without a bias.
class Linear : public Module {
 public:
  explicit Linear(int64_t out) : weight_(whole_numbers({8, out}, 3)) {
    add_parameter("weight", weight_, ParameterRole::matrix);
  }
  Tensor forward(const Tensor& x) override { return linear(x, weight_, {}); }

 private:
  Tensor weight_;
};

}  // namespace
TEST_CASE("embedding: an index outside of the table gives a row of NaN, and backward ignores it") {
  constexpr int64_t V = 3, C = 40;
  for (const int32_t wrong : {-1, 3, 1 << 30}) {
    const Tensor indices = Tensor::from(std::vector<int32_t>{2, wrong, 0, 2}, {4}).to(Device::cuda);
    const Tensor table = random_tensor({V, C}, 1), dy = whole_numbers({4, C}, 2);
    const auto y = embedding(indices, on_device(table)).to(Device::cpu).to_vector<float>();
    for (int64_t c = 0; c < C; ++c) {
      CHECK(y[c] == table.data<float>()[2 * C + c]);
      CHECK(std::isnan(y[C + c]));
      CHECK(y[2 * C + c] == table.data<float>()[c]);
    }
    Tensor dtable = empty_on_device({V, C}, DType::f32);
    embedding_backward({indices, on_device(dy), false, dtable, no_tensor()});
    const auto d = dtable.to(Device::cpu).to_vector<float>();
    for (int64_t c = 0; c < C; ++c) {
      const float* in = dy.data<float>();
      CHECK(d[c] == in[2 * C + c]);
      CHECK(d[C + c] == 0);
      CHECK(d[2 * C + c] == in[c] + in[3 * C + c]);
    }
  }
}

TEST_CASE("a linear layer's gradients replace those of the step before, whether one kernel computes them or several") {
  const AmbientScope scope;
  ambient().recording = true;
  for (const char* const variant : {"narrow", ""}) {
    CAPTURE(variant);
    const ForcedVariant forced(linear_backward, *variant ? variant : nullptr);
    Linear layer(16);
    ParameterArena arena(layer, Device::cuda);
    const Tensor x = on_device(whole_numbers({5, 8}, 1)), dy = on_device(whole_numbers({5, 16}, 2));
    std::vector<std::vector<float>> gradients;
    for (int step = 0; step < 3; ++step) {
      arena.zero_gradients();
      backward(layer.forward(x), dy.clone());
      gradients.push_back(arena.gradients().to_vector<float>());
    }
    CHECK(gradients[1] == gradients[0]);
    CHECK(gradients[2] == gradients[0]);
  }
}

}  // namespace hs::test
