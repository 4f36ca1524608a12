// Whole models trained on the CUDA device: the losses of the CPU, and the same bits with and without a captured step.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>

#include "data/loader/loader.h"
#include "data/memory_source.h"
#include "engine/random.h"
#include "models/models.h"
#include "models/train.h"
#include "tests/support/emulated.h"
#include "tests/support/sanitized.h"

namespace hs::test {
namespace {

// Digits that can be learnt: class c is a bright square at a place of its own, on noise. Epochs are all the same.
class Squares : public BatchSource {
 public:
  Squares(int64_t samples, int64_t batch) : samples_(samples), batch_(batch) {}

  Batch next() override {
    const int64_t count = std::min(batch_, samples_ - position_);
    std::vector<uint8_t> pixels;
    std::vector<int32_t> labels;
    for (int64_t n = position_; n < position_ + count; ++n) {
      const auto label = static_cast<int32_t>(n % 10);
      labels.push_back(label);
      for (int i = 0; i < 784; ++i) {
        const bool bright = i / 28 / 5 == label / 5 + 1 && i % 28 / 5 == label % 5;
        const uint32_t noise = random_bits({9, RandomPurpose::init, 1, 0, 0}, static_cast<uint64_t>(n * 784 + i));
        pixels.push_back(static_cast<uint8_t>(bright ? 200 + noise % 56 : noise % 50));
      }
    }
    std::vector<int32_t> samples;
    for (int64_t n = position_; n < position_ + count; ++n) samples.push_back(static_cast<int32_t>(n));
    const Tensor epoch = Tensor::from(std::vector<int32_t>{epoch_}, {});
    position_ = (position_ + count) % samples_;
    if (position_ == 0) ++epoch_;
    return {Tensor::from(pixels, {count, 28, 28, 1}), Tensor::from(labels, {count}), Tensor::from(samples, {count}),
            epoch};
  }
  int64_t samples() const override { return samples_; }
  int64_t batches_per_epoch() const override { return (samples_ + batch_ - 1) / batch_; }
  PixelScale pixel_scale() const override { return {0.1307f, 0.3081f}; }

 private:
  int64_t samples_, batch_, position_ = 0;
  int32_t epoch_ = 0;
};

// The emulator and the CPU's vectors are many times slower under AddressSanitizer: there the same code runs fewer
// steps.
const bool is_slow = with_address_sanitizer;

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;  // training and test loss of each epoch
};

struct Amount {
  int64_t samples = 22, batch = 6, epochs = 2;  // the last batch of an epoch has 4
};

Outcome train_on(Device device, const std::string& name, bool graph, const char* optimizer = "adam",
                 Precision precision = Precision::f32, const AugmentOptions& augment = {}, const Amount& amount = {}) {
  const auto model = make_model(name, 3);
  ParameterArena arena(*model, device);
  Squares training(amount.samples, amount.batch), test(std::min<int64_t>(amount.samples, 10), 10);
  TrainConfig config;
  config.epochs = amount.epochs;
  const bool is_adam = optimizer == std::string("adam");
  config.optimizer = {.name = optimizer, .learning_rate = is_adam ? 3e-3f : 0.02f};
  config.seed = 5;
  config.device = device;
  config.graph = graph;
  config.precision = precision;
  config.augment = augment;
  Outcome outcome;
  for (const EpochResult& epoch : train(*model, arena, training, test, config).epochs) {
    outcome.losses.push_back(epoch.training_loss);
    outcome.losses.push_back(epoch.test.loss);
  }
  outcome.weights = arena.values.to_vector<float>();
  return outcome;
}

}  // namespace

TEST_CASE("training on the device follows the CPU's losses") {
  for (const auto& [name, optimizer] :
       {std::pair{"mnist_cnn", "adam"}, {"mlp", "adam"}, {"mnist_cnn", "muon"}, {"mnist_cnn", "schedule-free"}}) {
    const Outcome cpu = train_on(Device::cpu, name, false, optimizer),
                  cuda = train_on(Device::cuda, name, false, optimizer);
    INFO(name, ", ", optimizer);
    REQUIRE(cuda.losses.size() == cpu.losses.size());
    for (size_t i = 0; i < cpu.losses.size(); ++i) {
      CAPTURE(i);
      // f32 sums in another order, amplified by Adam, which divides by the size of the gradient.
      CHECK(std::fabs(cuda.losses[i] - cpu.losses[i]) <= 1e-4 * cpu.losses[i]);
    }
    CHECK(cpu.losses.back() < 0.9 * cpu.losses.front());  // it learnt something, so the comparison means something
  }
}

TEST_CASE("a captured step gives the same bits as a step done as it comes") {
  for (const char* optimizer : {"sgd", "muon", "adam"}) {
    if (is_slow && optimizer != std::string("adam")) continue;  // the other tests of optimizers run these
    const Outcome off = train_on(Device::cuda, "mnist_cnn", false, optimizer),
                  on = train_on(Device::cuda, "mnist_cnn", true, optimizer);
    CHECK(on.weights == off.weights);
    CHECK(on.losses == off.losses);
  }
}

// The recorded step reads samples and epoch from the device: a host value would repeat the first step's pictures.
TEST_CASE("augmented training gives the same bits with a captured step, and other bits than without") {
  const AugmentOptions all{.shift = 2, .rotate = 15, .cutout = 6, .flip = true};
  const auto train_augmented = [](Device device, bool graph, const AugmentOptions& augment) {
    return train_on(device, "mlp", graph, "adam", Precision::f32, augment);
  };
  const Outcome off = train_augmented(Device::cuda, false, all), on = train_augmented(Device::cuda, true, all);
  CHECK(on.weights == off.weights);
  CHECK(on.losses == off.losses);
  CHECK(off.weights != train_augmented(Device::cuda, false, {}).weights);
  const Outcome cpu = train_augmented(Device::cpu, false, all);
  for (size_t i = 0; i < cpu.losses.size(); ++i) CHECK(std::fabs(on.losses[i] - cpu.losses[i]) <= 1e-4 * cpu.losses[i]);
}

// 22 samples in batches of 4: an epoch has 5 whole batches and one of 2.
Outcome train_resident(const char* name, Precision precision, bool graph, int64_t graph_steps, bool shuffle = true,
                       const AugmentOptions& augment = {}) {
  Squares digits(22, 22);
  const Batch all = digits.next();
  SampleInfo info;
  info.rows = info.columns = 28;
  info.channels = 1;
  info.classes = 10;
  info.scale = digits.pixel_scale();
  const MemorySource set(info, all.images.to_vector<uint8_t>(), all.labels.to_vector<int32_t>());
  const auto model = make_model(name, 3);
  ParameterArena arena(*model, Device::cuda);
  Loader training(set, {.batch = 4, .shuffle = shuffle, .device = Device::cuda, .cache = CacheMode::device});
  TrainConfig config;
  config.epochs = 4;
  config.seed = 5;
  config.device = Device::cuda;
  config.graph = graph;
  config.graph_steps = graph_steps;
  config.precision = precision;
  config.augment = augment;
  config.optimizer.schedule.kind = ScheduleKind::cosine;
  config.scaler = {.initial = 0x1p30f};  // the first steps overflow, and are skipped
  Outcome outcome;
  std::vector<int64_t> steps;
  TrainHooks hooks;
  hooks.on_step = [&](const Progress& progress) { steps.push_back(progress.step); };
  const TrainResult result = train(*model, arena, training, training, config, hooks);
  for (const EpochResult& epoch : result.epochs) {
    outcome.losses.push_back(epoch.training_loss);
    outcome.losses.push_back(epoch.test.loss);
  }
  for (const float scale : result.loss_scales) outcome.losses.push_back(scale);
  CHECK(result.loss_scales.size() == (precision == Precision::f16 ? 24u : 0u));
  CHECK((result.skipped_steps > 0) == (precision == Precision::f16));
  CHECK(result.samples == 4 * 22);
  CHECK(steps.size() == 24);
  for (size_t i = 0; i < steps.size(); ++i) CHECK(steps[i] == static_cast<int64_t>(i % 6 + 1));
  outcome.weights = arena.values.to_vector<float>();
  return outcome;
}

TEST_CASE("graphs of several steps, which gather and log by themselves, give the bits of one step at a time") {
  const AugmentOptions augment{.shift = 2, .flip = true};
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    CAPTURE(hs::name(precision));
    const Outcome off = train_resident("mnist_cnn", precision, false, 1);
    CHECK(train_resident("mnist_cnn", precision, true, 1).weights == off.weights);
    for (const int64_t steps : {2, 5}) {  // two groups and two steps in an epoch, or one and one
      if (is_slow && (steps == 2) == (precision == Precision::f16)) continue;
      CAPTURE(steps);
      const Outcome grouped = train_resident("mnist_cnn", precision, true, steps);
      CHECK(grouped.weights == off.weights);
      CHECK(grouped.losses == off.losses);
    }
  }
  for (const bool shuffle : {true, false}) {
    const Outcome off = train_resident("mlp", Precision::bf16, false, 1, shuffle, augment);
    CHECK(train_resident("mlp", Precision::bf16, true, 3, shuffle, augment).weights == off.weights);
  }
  CHECK_THROWS_WITH_AS(train_resident("mlp", Precision::f32, false, 2),
                       "graph of 2 steps: needs a graph, the training set on the device (cache device) and no "
                       "accumulation",
                       Error);
}

#ifdef HALFSTEP_TEST_EMULATED
TEST_CASE("the host may be many graphs of steps ahead of the device") {
  SampleInfo info;
  info.rows = info.columns = info.channels = 1;
  info.classes = 10;
  std::vector<uint8_t> pixels(40);
  std::vector<int32_t> labels(pixels.size());
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(6 * i);
    labels[i] = static_cast<int32_t>(i % 10);
  }
  const MemorySource set(info, pixels, labels), few(info, {0}, {0});
  const auto weights = [&](int64_t graph_steps) {
    const auto model = make_model("mlp", 3, {1, 1, 1, 10});
    ParameterArena arena(*model, Device::cuda);
    Loader training(set, {.batch = 1, .device = Device::cuda, .cache = CacheMode::device});
    Loader test(few, {.batch = 1, .device = Device::cuda});
    TrainConfig config;
    config.epochs = 1;
    config.device = Device::cuda;
    config.graph = true;
    config.graph_steps = graph_steps;
    train(*model, arena, training, test, config);
    return arena.values.to_vector<float>();
  };
  const std::vector<float> expected = weights(1);
  const Emulator fresh;
  emulator::options().delay_streams = true;
  for (const uint64_t seed : {1, 2, 3}) {
    emulator::options().seed = seed;
    emulator::reset();
    CHECK(weights(2) == expected);
  }
}

// A device loads a kernel at its first launch, which a capture may not allow: the step that runs before it launches
// all.
TEST_CASE("no kernel is launched for the first time in a capture") {
  for (const char* model : {"mnist_cnn", "mlp"}) {
    for (const int64_t steps : {1, 3}) {
      if (steps == 1 && model == std::string("mnist_cnn")) continue;  // has no other kernels
      const Emulator as_in_a_new_process;
      train_resident(model, Precision::f16, true, steps, true, {.shift = 2});
      const std::vector<std::string> first = emulator::take_first_launches_in_captures();
      INFO(model, ", graphs of ", steps, " steps: ", fmt::format("{}", fmt::join(first, ", ")));
      CHECK(first.empty());
    }
  }
}
#endif

TEST_CASE("training twice gives the same bits") {
  CHECK(train_on(Device::cuda, "mlp", true).weights == train_on(Device::cuda, "mlp", true).weights);
}

TEST_CASE("mixed precision on the device learns as f32 does, with the same bits captured or not") {
  const Outcome f32 = train_on(Device::cuda, "mnist_cnn", false);
  for (const Precision precision : {Precision::tf32, Precision::f16, Precision::bf16}) {
    CAPTURE(hs::name(precision));
    const Outcome off = train_on(Device::cuda, "mnist_cnn", false, "adam", precision),
                  on = train_on(Device::cuda, "mnist_cnn", true, "adam", precision);
    CHECK(on.weights == off.weights);
    CHECK(off.weights != f32.weights);
    for (size_t i = 0; i < f32.losses.size(); ++i) {
      CHECK(std::fabs(off.losses[i] - f32.losses[i]) <= 0.05 * f32.losses[i] + 0.02);
    }
  }
}

// In f16 both convolutions of mnist_cnn are fused kernels on the device; the CPU has its own.
TEST_CASE("over 200 steps in f16 the device follows the CPU, with fused convolutions") {
  const Amount amount{.samples = 8, .batch = 2, .epochs = is_slow ? 5 : 50};
  const auto run = [&](Device device) {
    return train_on(device, "mnist_cnn", device == Device::cuda, "adam", Precision::f16, {}, amount);
  };
  const Outcome cpu = run(Device::cpu), cuda = run(Device::cuda);
  REQUIRE(cuda.losses.size() == cpu.losses.size());
  for (size_t i = 0; i < cpu.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(cuda.losses[i] - cpu.losses[i]) <= 0.05 * cpu.losses[i] + 0.02);
  }
  CHECK(cpu.losses.back() < (is_slow ? 1 : 0.5) * cpu.losses.front());
}

}  // namespace hs::test
