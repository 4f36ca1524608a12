// Mixed precision in whole training runs: which op runs in which type, that parameters are cast once for each step and
// keep their f32 value, and that one bad micro-batch costs exactly its step.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "bench/measure/observers/kernel_trace.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/gemm/gemm.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/layers.h"
#include "models/training/train.h"

namespace hs::test {

using bench::measure::KernelCall;
using bench::measure::KernelTrace;

namespace {

constexpr int64_t micro_batch = 4, accumulated = 3;

// Micro-batches of noise, each with a number of its own; those of one optimizer step can be left out.
class Noise : public BatchSource {
 public:
  explicit Noise(int64_t steps, int64_t left_out = -1) : steps_(steps), left_out_(left_out) {}

  Batch next() override {
    if (position_ / accumulated == left_out_) position_ += accumulated;
    std::vector<uint8_t> pixels;
    std::vector<int32_t> labels;
    for (int64_t n = position_ * micro_batch; n < (position_ + 1) * micro_batch; ++n) {
      labels.push_back(static_cast<int32_t>(n % 10));
      for (int64_t i = 0; i < 64; ++i) {
        const uint32_t bits = random_bits({9, RandomPurpose::init, 1, 0, 0}, static_cast<uint64_t>(n * 64 + i));
        pixels.push_back(static_cast<uint8_t>(bits % 256));
      }
    }
    position_ = (position_ + 1) % (steps_ * accumulated);
    return {Tensor::from(pixels, {micro_batch, 8, 8, 1}), Tensor::from(labels, {micro_batch})};
  }
  int64_t samples() const override { return batches_per_epoch() * micro_batch; }
  int64_t batches_per_epoch() const override { return (steps_ - (left_out_ >= 0)) * accumulated; }
  PixelScale pixel_scale() const override { return {0.5f, 0.5f}; }

 private:
  int64_t steps_, left_out_, position_ = 0;
};

// y = x, but the first element of its gradient is `bad`.
Tensor spoil_gradient(const Tensor& x, float bad) {
  return record("spoil_gradient", x.clone(), {x}, [bad](const Tensor& dy) -> Gradients {
    Tensor dx = dy.clone();
    dx.mutable_data<float>()[0] = bad;
    return {dx};
  });
}

// A convolution, dropout and a linear layer; the gradient of one training micro-batch is spoiled.
class Net : public Module {
 public:
  Net() : conv_(1, 8, {}, keys_), dropout_(0.5, keys_), linear_(288, 10, keys_) {
    add_child("conv", conv_);
    add_child("linear", linear_);
  }
  Tensor forward(const Tensor& images) override {
    const Tensor x = relu(conv_.forward(images)).reshape({images.shape()[0], 288});
    Tensor logits = linear_.forward(dropout_.forward(x));
    if (!ambient().training) return logits;
    if (logits.dtype() != DType::f32) logits = cast(logits, DType::f32);
    return calls_++ == spoiled_call ? spoil_gradient(logits, bad) : logits;
  }
  int64_t spoiled_call = -1;
  float bad = 0;

 private:
  LayerKeys keys_{1};
  Conv2d conv_;
  Dropout dropout_;
  Linear linear_;
  int64_t calls_ = 0;
};

TrainConfig config_of(Precision precision) {
  TrainConfig config;
  config.epochs = 1;
  config.accumulate = accumulated;
  config.optimizer = {.name = "adam", .learning_rate = 1e-2f};
  config.precision = precision;
  config.scaler.initial = config.scaler.smallest = 1024;  // stays there, so that a skipped step leaves no other trace
  return config;
}

TEST_CASE("one bad micro-batch of a step: the whole step is left out, exactly once") {
  Net expected;
  ParameterArena expected_arena(expected);
  Noise all_but_one(4, 1), test(1);
  const TrainResult without = train(expected, expected_arena, all_but_one, test, config_of(Precision::f16));
  CHECK(without.steps == 3);
  CHECK(without.skipped_steps == 0);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (int64_t i = 0; i < accumulated; ++i) {
      INFO("gradient ", bad, " in micro-batch ", i);
      Net model;
      model.spoiled_call = accumulated + i;
      model.bad = bad;
      ParameterArena arena(model);
      Noise training(4), again(1);
      const TrainResult result = train(model, arena, training, again, config_of(Precision::f16));
      CHECK(result.steps == 3);
      CHECK(result.skipped_steps == 1);
      CHECK(result.loss_scale == 1024);
      CHECK(arena.values.to_vector<float>() == expected_arena.values.to_vector<float>());
    }
  }
}

// (slot, type) -> calls, in one optimizer step of `micro_batches`.
std::map<std::pair<std::string, DType>, int> calls_of_a_step(Precision precision, int64_t micro_batches) {
  Net model;
  ParameterArena arena(model);
  Noise training(1), test(1);
  TrainConfig config = config_of(precision);
  config.accumulate = micro_batches;
  std::map<std::pair<std::string, DType>, int> counts;
  const KernelTrace trace;
  TrainHooks hooks;
  hooks.should_stop = [] { return true; };
  train(model, arena, training, test, config, hooks);
  for (const KernelCall& call : trace.calls()) ++counts[{call.slot, call.dtype}];
  return counts;
}

TEST_CASE("matrix products and convolutions run in the scope's type, the rest in f32") {
  for (const auto& [precision, type] :
       {std::pair(Precision::f32, DType::f32), std::pair(Precision::tf32, DType::f32),
        std::pair(Precision::f16, DType::f16), std::pair(Precision::bf16, DType::bf16)}) {
    INFO(name(precision));
    std::map<std::string, std::set<DType>> types;
    for (const auto& [key, count] : calls_of_a_step(precision, 1)) types[key.first].insert(key.second);
    for (const char* slot : {"conv2d_forward", "conv2d_backward", "gemm"}) {
      CHECK(types.at(slot) == std::set<DType>{type});
    }
    for (const char* slot : {"softmax_cross_entropy_forward", "adam_step", "begin_step"}) {
      CAPTURE(std::string(slot));
      REQUIRE(types.contains(slot));
      CHECK(types.at(slot) == std::set<DType>{DType::f32});
    }
    CHECK(types.contains("cast_forward") == (type != DType::f32));
    CHECK(types.contains("measure_gradients") == (precision == Precision::f16));  // only f16 needs a scale
  }
}

TEST_CASE("parameters are cast once for each step, not for each micro-batch") {
  for (const auto& [precision, type] :
       {std::pair(Precision::f16, DType::f16), std::pair(Precision::bf16, DType::bf16)}) {
    const auto casts = [&, p = precision](int64_t micro_batches) {
      return calls_of_a_step(p, micro_batches).at({"cast_forward", DType::f32});
    };
    // a + micro_batches * b casts, where b are those of activations.
    CHECK((3 * casts(1) - casts(3)) / 2 == 1);
    CHECK((3 * casts(1) - casts(3)) % 2 == 0);
  }
}

// bf16 has 8 bits of mantissa: near 1 its neighbours are 0.004 and 0.008 away. A weight that lived in bf16 could not
// move by less than half of that.
TEST_CASE("updates far below the resolution of the 16-bit copy add up in the parameter") {
  for (const Precision precision : {Precision::f16, Precision::bf16}) {
    Net model;
    ParameterArena arena(model);
    arena.values.copy_from(
        Tensor::from(std::vector<float>(static_cast<size_t>(arena.values.size()), 1.0f), arena.values.shape()));
    Noise training(200), test(1);
    TrainConfig config = config_of(precision);
    config.optimizer.learning_rate = 1e-5f;
    config.optimizer.beta1 = config.optimizer.beta2 = 0;  // every step is 1e-5 long, in the gradient's direction
    train(model, arena, training, test, config);
    const Tensor& weight = *arena.parameters()[2].value;  // linear.weight
    float farthest = 0;
    for (const float value : weight.to_vector<float>()) farthest = std::max(farthest, std::abs(value - 1));
    CHECK(farthest > 1e-4f);
    CHECK(farthest < 200.5e-5f);
  }
}

// The gradient of the label's logit is p - 1 = -9.1e-4. In bf16 p would be 1 and the gradient 0; in f16 it would be 7 %
// too large.
TEST_CASE("the loss of 16-bit logits is computed in f32, and its gradient rounded once") {
  const double other = 1 / (1 + std::exp(7.0)), expected[] = {-other, other};  // of the label, of the other class
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const int32_t label : {0, 1}) {
      INFO(std::string(name(type)), ", label ", label);
      std::vector<float> logits(2, 0.0f);
      logits[static_cast<size_t>(label)] = 7;
      Tensor leaf = Tensor::from(logits, {1, 2});
      leaf.set_requires_grad(true);
      const Tensor loss = softmax_cross_entropy(cast(leaf, type), Tensor::from(std::vector<int32_t>{label}, {1}));
      CHECK(loss.dtype() == DType::f32);
      CHECK(loss.item() == doctest::Approx(std::log1p(std::exp(-7.0))).epsilon(1e-3));
      backward(loss);
      const auto gradient = leaf.grad().to_vector<float>();
      const double roundoff = type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0;
      for (size_t j = 0; j < 2; ++j) {
        const double wanted = expected[j == static_cast<size_t>(label) ? 0 : 1];
        CHECK(std::abs(gradient[j] - wanted) <= 1e-7 + roundoff * std::abs(wanted));
      }
    }
  }
}

TEST_CASE("each scope's copies are of the parameters as they are then") {
  Net model;
  ParameterArena arena(model);
  const Tensor& weight = *arena.parameters()[0].value;
  for (int step = 0; step < 2; ++step) {
    const Autocast amp(Precision::bf16, arena);
    CHECK(cast(autocast_parameter(weight), DType::f32).to_vector<float>() ==
          cast(cast(weight.detach(), DType::bf16), DType::f32).to_vector<float>());
    Tensor values = arena.values;
    for (int64_t i = 0; i < values.size(); ++i) values.mutable_data<float>()[i] += 1;
  }
}

}  // namespace
}  // namespace hs::test
