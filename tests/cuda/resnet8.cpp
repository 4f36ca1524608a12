// resnet8 trained on the CUDA device: batch norm, residual blocks and statistics follow the CPU, with the same bits
// with and without a captured step.
#include <doctest/doctest.h>

#include <cmath>

#include "data/loader/loader.h"
#include "data/memory_source.h"
#include "engine/random.h"
#include "models/models.h"
#include "models/train.h"
#include "tests/support/emulated.h"

namespace hs::test {
namespace {

constexpr int64_t side = 8, samples = 16;

struct Outcome {
  std::vector<float> trained, statistics;
  std::vector<double> losses;  // training and test loss of each epoch
};

// Two epochs of two steps, each of two micro-batches.
Outcome train_on(Device device, Precision precision, bool graph) {
  SampleInfo info;
  info.rows = info.columns = side;
  info.channels = 3;
  info.classes = 10;
  info.scale = {0.5f, 0.25f};
  std::vector<uint8_t> pixels(static_cast<size_t>(samples * side * side * 3));
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(random_bits({4, RandomPurpose::synthetic, 1, 0, 0}, i) >> 24);
  }
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < samples; ++i) labels.push_back(static_cast<int32_t>(i % 10));
  const MemorySource set(info, std::move(pixels), std::move(labels));
  Loader training(set, {.batch = 4, .seed = 2, .device = device});
  Loader test(set, {.batch = 8, .shuffle = false, .device = device});

  const auto model = make_model("resnet8", 3, {.rows = side, .columns = side, .channels = 3});
  ParameterArena arena(*model, device);
  TrainConfig config;
  config.epochs = 2;
  config.optimizer = {.name = "nesterov", .learning_rate = 0.02f, .weight_decay = 1e-3f, .decay_vectors = false};
  config.accumulate = 2;
  config.device = device;
  config.graph = graph;
  config.precision = precision;
  config.scaler.initial = 1024;
  Outcome outcome;
  const TrainResult result = train(*model, arena, training, test, config);
  CHECK(result.steps == 4);
  for (const EpochResult& epoch : result.epochs) {
    outcome.losses.insert(outcome.losses.end(), {epoch.training_loss, epoch.test.loss});
  }
  const std::vector<float> values = arena.values.to_vector<float>();
  const auto border = values.begin() + arena.statistics_size();
  outcome.statistics.assign(values.begin(), border);
  outcome.trained.assign(border, values.end());
  return outcome;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double squares = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(double{a[i]} - b[i], 2), length += double{b[i]} * b[i];
  return std::sqrt(squares / length);
}

void check_follows(const Outcome& got, const Outcome& expected, double tolerance) {
  CHECK_FALSE(!(distance(got.trained, expected.trained) <= tolerance));
  CHECK_FALSE(!(distance(got.statistics, expected.statistics) <= tolerance));
  REQUIRE(got.losses.size() == expected.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i) {
    CHECK_FALSE(!(std::fabs(got.losses[i] - expected.losses[i]) <= tolerance * expected.losses[i]));
  }
}

}  // namespace

TEST_CASE("resnet8 on the device follows the CPU, and a captured step gives the bits of one that is not") {
  const Outcome cpu = train_on(Device::cpu, Precision::f32, false), cuda = train_on(Device::cuda, Precision::f32, true);
  CHECK(cpu.losses[2] < cpu.losses[0]);
  check_follows(cuda, cpu, 1e-4);
  const Outcome f16 = train_on(Device::cuda, Precision::f16, true),
                as_it_comes = train_on(Device::cuda, Precision::f16, false);
  CHECK(f16.trained == as_it_comes.trained);
  CHECK(f16.statistics == as_it_comes.statistics);
  CHECK(f16.trained != cuda.trained);
  check_follows(f16, cpu, 0.05);
}

}  // namespace hs::test
