// Gradient accumulation: every sample counts as much as in the big batch, whatever is divided how. That ops add to the
// gradients that are there: the rows of kernels/*/rows.cpp and tests/engine/optim.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "data/io/memory_source.h"
#include "data/loader/loader.h"
#include "kernels/linear/linear.h"
#include "models/training/train.h"

namespace hs::test {
namespace {

constexpr int64_t side = 5;

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
