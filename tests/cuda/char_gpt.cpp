// char_gpt on the CUDA device: the loss and the gradients of the CPU, and the same bits with and without graphs, of
// several steps that take their windows from a set on the device and of single ones.
#include <doctest/doctest.h>

#include <cmath>

#include "data/loader/loader.h"
#include "engine/ambient.h"
#include "engine/autograd.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"
#include "models/train.h"
#include "models/train_step.h"
#include "tests/support/emulated.h"
#include "tests/support/rule_text.h"

namespace hs::test {
namespace {

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;
};

Outcome train_on(Device device, const OptimizerConfig& optimizer, Precision precision, bool graph = false,
                 int64_t graph_steps = 1) {
  constexpr int64_t context = 8;
  const MemorySource set = rule_text(7, context);  // batches of 2: three whole ones, and one of 1
  const auto model = make_model("char_gpt", 3, {1, context + 1, 1, rule_symbols, 1, InputKind::tokens, 32, 2});
  ParameterArena arena(*model, device);
  Loader training(set, {.batch = 2, .device = device, .cache = CacheMode::device});
  TrainConfig config;
  config.epochs = 2;
  config.optimizer = optimizer;
  config.device = device;
  config.graph = graph;
  config.graph_steps = graph_steps;
  config.precision = precision;
  Outcome outcome;
  for (const EpochResult& epoch : train(*model, arena, training, training, config).epochs) {
    outcome.losses.push_back(epoch.training_loss);
    outcome.losses.push_back(epoch.test.loss);
  }
  outcome.weights = arena.values.to_vector<float>();
  return outcome;
}

}  // namespace

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
        double difference = 0, length = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          difference += std::pow(got[i] - expected[p][i], 2);
          length += std::pow(expected[p][i], 2);
        }
        CAPTURE(std::sqrt(difference / length));
        CHECK_FALSE(!(difference <= tolerance * tolerance * length));
      }
    }
  }
}

TEST_CASE("char_gpt: graphs of two steps, and of what is left of an epoch, give the bits of steps done as they come") {
  const OptimizerConfig adamw{.name = "adamw", .weight_decay = 0.1f, .decay_vectors = false, .clip = 1};
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    CAPTURE(std::string(name(precision)));
    const Outcome off = train_on(Device::cuda, adamw, precision);
    const Outcome grouped = train_on(Device::cuda, adamw, precision, true, 2);
    CHECK(grouped.weights == off.weights);
    CHECK(grouped.losses == off.losses);
  }
}

}  // namespace hs::test
