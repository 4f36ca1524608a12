// Whole models trained on the CUDA device: the losses of the CPU, and the same bits with and without a captured step,
// and with graphs of several steps that take their samples from a set on the device.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>

#include "data/loader/loader.h"
#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/random.h"
#include "kernels/examples/compare.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"
#include "models/training/train.h"
#include "models/training/train_step.h"
#include "tests/support/emulated.h"
#include "tests/support/made_images.h"
#include "tests/support/rule_text.h"
#include "tests/support/sanitized.h"

namespace hs::test {
namespace {

// The emulator and the CPU's vectors are many times slower under AddressSanitizer: there the same code runs fewer
// steps.
const bool is_slow = with_address_sanitizer;

const MemorySource digits = squares(22);

struct Outcome {
  std::vector<float> trained, statistics;
  std::vector<double> losses;  // training and test loss of each epoch
  std::vector<float> scales;   // of the loss, after each step
  bool operator==(const Outcome&) const = default;
};

// A training on the device, in two epochs whose last batch is short.
struct Run {
  explicit Run(const char* model_ = "mnist_cnn", const MemorySource& set_ = digits) : model(model_), set(set_) {
    config.epochs = 2;
    config.optimizer = {.name = "adam", .learning_rate = 3e-3f};
    config.seed = 5;
    config.device = Device::cuda;
  }

  Outcome train() const {
    const auto network = make_model(model, 3, sizes);
    ParameterArena arena(*network, config.device);
    LoaderOptions options = loading;
    if (config.device == Device::cpu) options.device = Device::cpu;
    const PartOfSamples few(set, 0, 10, SampleOrder::as_it_is);
    Loader training(set, options), test(few, {.batch = 8, .shuffle = false, .device = options.device});
    int64_t steps = 0;
    TrainHooks hooks;
    hooks.on_step = [&](const Progress& progress) {
      CHECK(progress.step == steps % progress.steps_per_epoch + 1);
      ++steps;
    };
    const TrainResult result = hs::train(*network, arena, training, test, config, hooks);
    CHECK(steps == config.epochs * ((training.batches_per_epoch() + config.accumulate - 1) / config.accumulate));
    CHECK(result.samples == config.epochs * set.info().count);
    CHECK((result.skipped_steps > 0) == (config.scaler.initial > 0x1p20f && config.precision == Precision::f16));
    CHECK(std::ssize(result.loss_scales) == (config.precision == Precision::f16 ? steps : 0));
    Outcome outcome;
    for (const EpochResult& epoch : result.epochs) {
      outcome.losses.insert(outcome.losses.end(), {epoch.training_loss, epoch.test.loss});
    }
    outcome.scales = result.loss_scales;
    const std::vector<float> values = arena.values.to_vector<float>();
    const auto border = values.begin() + arena.statistics_size();
    outcome.statistics.assign(values.begin(), border);
    outcome.trained.assign(border, values.end());
    return outcome;
  }
  Outcome train_on_cpu() const {
    Run other = *this;
    other.config.device = Device::cpu, other.config.graph = false;
    return other.train();
  }
  Outcome train_captured(int64_t graph_steps = 1) const {
    Run other = *this;
    other.config.graph = true, other.config.graph_steps = graph_steps;
    return other.train();
  }

  const char* model;
  const MemorySource& set;
  ModelSizes sizes = {};
  LoaderOptions loading = {.batch = 6, .shuffle = false};
  TrainConfig config;
};

// The samples lie on the device: 22 in batches of 4 are 5 whole batches and one of 2. In f16 the first steps overflow.
Run resident(const char* model, Precision precision, bool shuffle = true, const AugmentOptions& augment = {}) {
  Run run(model);
  run.loading = {.batch = 4, .shuffle = shuffle, .device = Device::cuda, .cache = CacheMode::device};
  run.config.epochs = 2;
  run.config.optimizer = {.schedule = {.kind = ScheduleKind::cosine}};
  run.config.precision = precision;
  run.config.augment = augment;
  run.config.scaler.initial = 0x1p24f;
  return run;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double squares = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(double{a[i]} - b[i], 2), length += double{b[i]} * b[i];
  return std::sqrt(squares / length);
}

void check_losses(const Outcome& got, const Outcome& expected, double relative, double absolute = 0) {
  const examples::Comparison result = examples::compare(got.losses, expected.losses, {relative, absolute, 0});
  CHECK_MESSAGE(result.passed, result.summary);
}

}  // namespace

TEST_CASE("training on the device follows the CPU's losses") {
  for (const auto& [model, optimizer] :
       {std::pair{"mnist_cnn", "adam"}, {"mnist_cnn", "muon"}, {"mnist_cnn", "schedule-free"}}) {
    INFO(model, ", ", optimizer);
    Run run(model);
    run.config.optimizer.name = optimizer;
    if (optimizer != std::string("adam")) run.config.optimizer.learning_rate = 0.02f;
    const Outcome cpu = run.train_on_cpu();
    // f32 sums in another order, amplified by Adam, which divides by the size of the gradient.
    check_losses(run.train(), cpu, 1e-4);
    CHECK(cpu.losses.back() < 0.9 * cpu.losses.front());  // it learnt something, so the comparison means something
  }
}

TEST_CASE("a captured step gives the same bits as a step done as it comes" * doctest::skip(is_slow)) {
  for (const char* optimizer : {"sgd", "muon"}) {  // Adam: in graphs of several steps
    Run run;
    run.config.optimizer.name = optimizer;
    CHECK((run.train_captured() == run.train()));
  }
}

// The recorded step reads samples and epoch from the device: a host value would repeat the first step's pictures.
TEST_CASE("augmented training gives the same bits with a captured step, and other bits than without") {
  Run run("mlp");
  const Outcome plain = run.train();
  run.config.augment = {.shift = 2, .rotate = 15, .cutout = 6, .flip = true};
  const Outcome off = run.train();
  CHECK((run.train_captured() == off));
  CHECK(off.trained != plain.trained);
  check_losses(off, run.train_on_cpu(), 1e-4);
}

TEST_CASE("graphs of several steps, which gather and log by themselves, give the bits of one step at a time") {
  for (const Precision precision : {Precision::f32, Precision::f16}) {
    CAPTURE(hs::name(precision));
    const Run run = resident("mnist_cnn", precision);
    const Outcome off = run.train();
    for (const int64_t steps : {1, 2, 5}) {  // two groups and two steps in an epoch, or one and one
      if (is_slow && steps > 1 && (steps == 2) == (precision == Precision::f16)) continue;
      CAPTURE(steps);
      CHECK((run.train_captured(steps) == off));
    }
  }
  for (const bool shuffle : {true, false}) {
    const Run run = resident("mlp", Precision::bf16, shuffle, {.shift = 2, .flip = true});
    CHECK((run.train_captured(3) == run.train()));
  }
  Run without_graph = resident("mlp", Precision::f32);
  without_graph.config.graph_steps = 2;
  CHECK_THROWS_WITH_AS(without_graph.train(),
                       "graph of 2 steps: needs a graph, the training set on the device (cache device) and no "
                       "accumulation",
                       Error);
}

TEST_CASE("the same bits for every way to load, captured or not, and with more batches held than slots") {
  const LoaderOptions ways[] = {{},
                                {.prefetch = 2, .workers = 2},
                                {.prefetch = 1, .workers = 0, .pin = false},
                                {.prefetch = 1, .cache = CacheMode::device},
                                {.prefetch = 1, .normalize_on_host = true}};
  Run run("mlp");
  for (const int64_t accumulate : {3, 1}) {
    CAPTURE(accumulate);
    run.config.accumulate = accumulate;
    std::optional<Outcome> expected;
    for (const LoaderOptions& way : ways) {
      run.loading = way;
      run.loading.batch = 6, run.loading.device = Device::cuda;
      const Outcome outcome = run.train();
      CHECK((outcome == expected.value_or(outcome)));
      CHECK((run.train_captured() == outcome));
      expected = outcome;
    }
  }
  const Outcome expected = run.train();
  run.loading = {.batch = 6, .device = Device::cuda, .prefetch = 2, .workers = 2};
  for_each_delay(4, [&] { CHECK((run.train_captured() == expected)); });
}

#ifdef HALFSTEP_TEST_EMULATED
TEST_CASE("the host may be many graphs of steps ahead of the device") {
  const MemorySource set = made_images({1, 1, 1}, {}, 40, [](int64_t n, int64_t) { return 6 * n; });
  Run run("mlp", set);
  run.sizes = {1, 1, 1, 10};
  run.loading = {.batch = 1, .device = Device::cuda, .cache = CacheMode::device};
  run.config.epochs = 1;
  const Outcome expected = run.train_captured();
  for_each_delay(3, [&] { CHECK((run.train_captured(2) == expected)); });
}

// A device loads a kernel at its first launch, which a capture may not allow: the step that runs before it launches
// all.
TEST_CASE("no kernel is launched for the first time in a capture") {
  for (const auto& [model, steps] : {std::pair{"mnist_cnn", 3}, {"mlp", 1}, {"mlp", 3}}) {
    const Emulator as_in_a_new_process;
    resident(model, Precision::f16, true, {.shift = 2}).train_captured(steps);
    const std::vector<std::string> first = emulator::take_first_launches_in_captures();
    INFO(model, ", graphs of ", steps, " steps: ", fmt::format("{}", fmt::join(first, ", ")));
    CHECK(first.empty());
  }
}
#endif

TEST_CASE("numbers on the device train as the pixels that they were, also where a graph gathers them") {
  const MemorySource numbers = as_numbers(digits);
  Run run = resident("mlp", Precision::f32);
  const Outcome pixels = run.train();
  Run of_numbers("mlp", numbers);
  of_numbers.loading = run.loading, of_numbers.config = run.config;
  CHECK((of_numbers.train() == pixels));
  CHECK((of_numbers.train_captured() == pixels));
  CHECK((of_numbers.train_captured(2) == pixels));
}

TEST_CASE("mixed precision on the device learns as f32 does, with the same bits captured or not") {
  Run run;
  const Outcome f32 = run.train();
  for (const Precision precision : {Precision::tf32, Precision::f16, Precision::bf16}) {
    CAPTURE(hs::name(precision));
    run.config.precision = precision;
    const Outcome off = run.train();
    CHECK((run.train_captured() == off));
    CHECK(off.trained != f32.trained);
    check_losses(off, f32, 0.05, 0.02);
  }
}

TEST_CASE("resnet8 on the device follows the CPU, and a captured step gives the bits of one that is not") {
  const MemorySource noise = made_images({8, 8, 3}, {0.5f, 0.25f}, 16, [](int64_t n, int64_t i) {
    return random_bits({4, RandomPurpose::synthetic, 1, 0, 0}, static_cast<uint64_t>(n * 192 + i)) >> 24;
  });
  Run run("resnet8", noise);
  run.sizes = {.rows = 8, .columns = 8, .channels = 3};
  run.loading = {.batch = 4, .seed = 2, .device = Device::cuda};
  run.config.optimizer = {.name = "nesterov", .learning_rate = 0.02f, .weight_decay = 1e-3f, .decay_vectors = false};
  run.config.accumulate = 2;
  run.config.scaler.initial = 1024;
  const Outcome cpu = run.train_on_cpu(), cuda = run.train_captured();
  CHECK(cpu.losses[2] < cpu.losses[0]);
  run.config.precision = Precision::f16;
  const Outcome f16 = run.train_captured();
  CHECK((f16 == run.train()));
  CHECK(f16.trained != cuda.trained);
  for (const auto& [got, tolerance] : {std::pair{cuda, 1e-4}, {f16, 0.05}}) {
    CHECK_FALSE(!(distance(got.trained, cpu.trained) <= tolerance));
    CHECK_FALSE(!(distance(got.statistics, cpu.statistics) <= tolerance));
    check_losses(got, cpu, tolerance);
  }
}

TEST_CASE("char_gpt: graphs of two steps, and of what is left of an epoch, give the bits of steps done as they come") {
  const MemorySource text = rule_text(7, 8);  // batches of 2: three whole ones, and one of 1
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    CAPTURE(hs::name(precision));
    Run run("char_gpt", text);
    run.sizes = {1, 9, 1, rule_symbols, 1, InputKind::tokens, 32, 2};
    run.loading = {.batch = 2, .device = Device::cuda, .cache = CacheMode::device};
    run.config.optimizer = {.name = "adamw", .weight_decay = 0.1f, .decay_vectors = false, .clip = 1};
    run.config.precision = precision;
    CHECK((run.train_captured(2) == run.train()));
  }
}

// Twice: the second time, buffers hold the gradients of the first.
TEST_CASE("char_gpt on the device has the CPU's loss and gradients") {
  const MemorySource set = rule_text(3, 12);
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    CAPTURE(std::string(name(precision)));
    const AmbientScope scope;
    ambient().recording = true;
    std::vector<std::vector<float>> expected;
    double expected_loss = 0;
    for (const Device device : {Device::cpu, Device::cuda}) {
      const auto model = make_model("char_gpt", 3, {1, 13, 1, rule_symbols, 1, InputKind::tokens, 32, 2});
      ParameterArena arena(*model, device);
      Loader loader(set, {.batch = 3, .device = device});
      const Autocast amp(precision, arena);
      const auto [tokens, labels] = prepare(InputKind::tokens, loader.next(), {});
      Tensor loss;
      for (int step = 0; step < 2; ++step) {
        arena.zero_gradients();
        loss = softmax_cross_entropy(model->forward(tokens), labels);
        backward(loss);
      }
      if (device == Device::cpu) expected_loss = loss.item();
      const double tolerance = precision == Precision::f32 ? 2e-6 : 2e-2;
      CHECK_FALSE(!(std::fabs(loss.item() - expected_loss) <= tolerance));
      for (size_t p = 0; p < arena.parameters().size(); ++p) {
        const std::vector<float> got = arena.parameters()[p].value->grad().to_vector<float>();
        if (device == Device::cpu) {
          expected.push_back(got);
          continue;
        }
        CAPTURE(arena.parameters()[p].name);
        CHECK_FALSE(!(distance(got, expected[p]) <= tolerance));
      }
    }
  }
}

}  // namespace hs::test
