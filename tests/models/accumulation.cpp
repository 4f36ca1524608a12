// Gradient accumulation against the big batch: the same bits where sums are exact, and every sample with its weight.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <set>
#include <vector>

#include "data/io/memory_source.h"
#include "data/loader/loader.h"
#include "engine/random.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/linear/linear.h"
#include "kernels/relu/relu.h"
#include "models/training/train.h"

namespace hs::test {
namespace {

uint32_t draw(uint32_t which, int64_t i) {
  return random_bits({17, RandomPurpose::init, which, 0, 0}, static_cast<uint64_t>(i));
}

constexpr int64_t batch = 8, side = 5, classes = 4;

// Eight images, given out in parts of the sizes asked for.
class Parts : public BatchSource {
 public:
  Parts(std::vector<uint8_t> pixels, std::vector<int64_t> sizes)
      : pixels_(std::move(pixels)), sizes_(std::move(sizes)) {}

  Batch next() override {
    const int64_t count = sizes_[part_], begin = begin_;
    part_ = (part_ + 1) % sizes_.size();
    begin_ = part_ == 0 ? 0 : begin + count;
    const std::vector<uint8_t> images(pixels_.begin() + begin * side * side,
                                      pixels_.begin() + (begin + count) * side * side);
    std::vector<int32_t> labels;
    for (int64_t n = begin; n < begin + count; ++n) labels.push_back(static_cast<int32_t>(draw(1, n) % classes));
    return {Tensor::from(images, {count, side, side, 1}), Tensor::from(labels, {count})};
  }
  int64_t samples() const override { return test::batch; }
  int64_t batches_per_epoch() const override { return static_cast<int64_t>(sizes_.size()); }
  PixelScale pixel_scale() const override { return {0, 1}; }

 private:
  const std::vector<uint8_t> pixels_;
  const std::vector<int64_t> sizes_;
  size_t part_ = 0;
  int64_t begin_ = 0;
};

using Number = std::function<float(uint32_t which, int64_t i)>;

class ConvNet : public Module {
 public:
  explicit ConvNet(const Number& number, float logit_scale) {
    const auto fill = [&](Tensor& tensor, const Shape& shape, uint32_t which, float factor) {
      std::vector<float> values;
      for (int64_t i = 0; i < shape.size(); ++i) values.push_back(factor * number(which, i));
      tensor = Tensor::from(values, shape);
    };
    fill(kernel_, {9, 2}, 2, 1);
    fill(kernel_bias_, {2}, 3, 1);
    fill(weight_, {18, classes}, 4, logit_scale);
    fill(bias_, {classes}, 5, 1);
    add_parameter("kernel", kernel_, ParameterRole::matrix);
    add_parameter("kernel_bias", kernel_bias_, ParameterRole::bias);
    add_parameter("weight", weight_, ParameterRole::matrix);
    add_parameter("bias", bias_, ParameterRole::bias);
  }
  Tensor forward(const Tensor& images) override {
    const Tensor x = relu(conv2d(images, kernel_, kernel_bias_));  // (N, 3, 3, 2)
    return linear(x.reshape({x.shape()[0], 18}), weight_, bias_);
  }

 private:
  Tensor kernel_, kernel_bias_, weight_, bias_;
};

struct Outcome {
  std::vector<std::vector<float>> gradients;  // of each parameter
  std::vector<float> weights;                 // after the step
  int64_t steps;
};

Outcome one_step(Module& model, const std::vector<uint8_t>& pixels, const std::vector<int64_t>& sizes) {
  ParameterArena arena(model);
  Parts training(pixels, sizes), test(pixels, {batch});
  TrainConfig config;
  config.epochs = 1;
  config.optimizer = {.name = "sgd", .learning_rate = 0.5f};
  config.accumulate = static_cast<int64_t>(sizes.size());
  Outcome outcome;
  TrainHooks hooks;
  hooks.on_gradients = [&](const GradScaler&) {
    for (const NamedParameter& parameter : arena.parameters()) {
      outcome.gradients.push_back(parameter.value->grad().to_vector<float>());
    }
  };
  outcome.steps = train(model, arena, training, test, config, hooks).steps;
  outcome.weights = arena.values.to_vector<float>();
  return outcome;
}

// Every way to write 8 as a sum of positive numbers in order: 128 of them. Bit i of `cuts`: a border behind sample i.
std::vector<int64_t> composition(unsigned cuts) {
  std::vector<int64_t> sizes = {1};
  for (int i = 0; i < batch - 1; ++i) {
    if (cuts >> i & 1) {
      sizes.push_back(1);
    } else {
      ++sizes.back();
    }
  }
  return sizes;
}
constexpr unsigned compositions = 1u << (batch - 1);

std::string written(const std::vector<int64_t>& sizes) { return fmt::format("{}", fmt::join(sizes, "+")); }

}  // namespace

// Pixels are 0 and 1, weights small integers. Logits are multiples of 128 that differ, so that a softmax is exactly 0
// or 1, and each sample's part of a gradient is an integer divided by 8: no sum rounds, in whichever order.
TEST_CASE("all 128 divisions of a batch of 8 give the big batch's gradients and weights, bit for bit") {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < batch * side * side; ++i) pixels.push_back(draw(0, i) % 2 ? 255 : 0);
  const Number integer = [](uint32_t which, int64_t i) {
    if (which == 5) return 128.0f * static_cast<float>(i);  // the last bias: no two logits are equal
    return static_cast<float>(static_cast<int32_t>(draw(which, i) % 5) - 2);
  };
  const auto run = [&](const std::vector<int64_t>& sizes) {
    ConvNet model(integer, 1024);
    return one_step(model, pixels, sizes);
  };
  const Outcome whole = run({batch});
  for (const auto& gradient : whole.gradients) CHECK(gradient != std::vector<float>(gradient.size()));
  std::set<std::vector<int64_t>> seen;
  for (unsigned cuts = 0; cuts < compositions; ++cuts) {
    const std::vector<int64_t> sizes = composition(cuts);
    CAPTURE(written(sizes));
    const Outcome parts = run(sizes);
    CHECK(parts.gradients == whole.gradients);
    CHECK(parts.weights == whole.weights);
    CHECK(parts.steps == 1);
    seen.insert(sizes);
  }
  CHECK(seen.size() == 128);
}

namespace {

// Logits of two classes, all zero: each class then has the probability 1/2. Sample n has pixel n alone, so that row n
// of the weight's gradient is +-1/2 times the weight of sample n in the step.
class Probe : public Module {
 public:
  Probe() : weight_(Tensor::zeros({side * side, 2}, DType::f32)) {
    add_parameter("weight", weight_, ParameterRole::matrix);
  }
  Tensor forward(const Tensor& images) override {
    return linear(images.reshape({images.shape()[0], side * side}), weight_, {});
  }
  Tensor weight_;
};

MemorySource one_pixel_each(int64_t count) {
  SampleInfo info;
  info.name = "one pixel each";
  info.rows = info.columns = side;
  info.scale = {0, 1};
  std::vector<uint8_t> images(static_cast<size_t>(count * side * side));
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < count; ++n) {
    images[static_cast<size_t>(n * side * side + n)] = 255;
    labels.push_back(static_cast<int32_t>(n % 2));
  }
  return {info, std::move(images), std::move(labels)};
}

size_t live(MemoryPurpose purpose) { return memory_stats(Device::cpu).live_by_purpose[static_cast<size_t>(purpose)]; }

void check_epochs(int64_t samples, int64_t batch_size, int64_t accumulate) {
  constexpr int64_t epochs = 2;
  const MemorySource set = one_pixel_each(samples);
  Probe model;
  ParameterArena arena(model);
  Loader training(set, {.batch = batch_size, .shuffle = true, .seed = 4}), test(set, {.batch = 25, .shuffle = false});
  TrainConfig config;
  config.epochs = epochs;
  config.optimizer = {.name = "sgd", .learning_rate = 1e-12f};  // the probabilities stay 1/2
  config.accumulate = accumulate;
  const int64_t batches = (samples + batch_size - 1) / batch_size, steps = (batches + accumulate - 1) / accumulate;
  const int64_t of_full_step = batch_size * accumulate;

  int64_t updates = 0, logged = 0;
  std::vector<int> seen(static_cast<size_t>(samples));
  TrainHooks hooks;
  hooks.on_gradients = [&](const GradScaler&) {
    CHECK(ambient().step.item() == updates);  // the counter of dropout, Adam and the schedule
    const int64_t step_of_epoch = updates % steps;
    const int64_t expected = std::min(of_full_step, samples - step_of_epoch * of_full_step);
    const std::vector<float> gradient = model.weight_.grad().to_vector<float>();
    int64_t in_step = 0;
    for (int64_t n = 0; n < samples; ++n) {
      const float part = std::fabs(gradient[static_cast<size_t>(2 * n)]);
      if (part == 0) continue;
      ++in_step;
      ++seen[static_cast<size_t>(n)];
      CHECK(std::fabs(part * static_cast<float>(expected) - 0.5f) <= 1e-6f);
    }
    CHECK(in_step == expected);
    ++updates;
  };
  hooks.on_step = [&](const Progress& progress) {
    CHECK(progress.step == logged % steps + 1);
    CHECK(progress.steps_per_epoch == steps);
    ++logged;
  };
  hooks.on_epoch = [&](int64_t epoch, const EpochResult&) {
    CHECK(updates == epoch * steps);
    CHECK(seen == std::vector<int>(static_cast<size_t>(samples), static_cast<int>(epoch)));
    CHECK(live(MemoryPurpose::gradients) == arena.gradients().bytes());  // none besides the parameters'
    CHECK(live(MemoryPurpose::workspace) == 0);
  };
  const TrainResult result = train(model, arena, training, test, config, hooks);
  CHECK(result.steps == epochs * steps);
  CHECK(result.samples == epochs * samples);
  CHECK(logged == result.steps);
}

}  // namespace

TEST_CASE("for every size of set, batch and group: the number of steps, and each sample once with an equal weight") {
  for (int64_t samples = 1; samples <= 25; ++samples) {
    for (int64_t batch_size = 1; batch_size <= 4; ++batch_size) {
      for (int64_t accumulate = 1; accumulate <= 5; ++accumulate) {
        CAPTURE(samples);
        CAPTURE(batch_size);
        CAPTURE(accumulate);
        check_epochs(samples, batch_size, accumulate);
      }
    }
  }
}

}  // namespace hs::test
