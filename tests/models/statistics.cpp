// Statistics, the values that a step folds instead of training them (Module::add_statistic), with batch norm's running
// mean and variance: PyTorch's rule, several micro-batches, steps that are skipped, and evaluation. That threads,
// ranks, checkpointing and resuming do not change their bits is shown with everything else's: TinyModel (test_ranks,
// test_resume) and SmallStaged (test_checkpoint_models) have a batch norm.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/op_table.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"
#include "models/layers.h"

namespace hs::test {
namespace {

using Floats = std::vector<float>;

constexpr int64_t rows = 24, channels = 3;

// A micro-batch of (rows, channels): channel c has a mean of about c + which.
Tensor values_of(uint32_t which) {
  Floats values;
  for (int64_t i = 0; i < rows * channels; ++i) {
    const uint32_t bits = random_bits({31, RandomPurpose::synthetic, which, 0, 0}, static_cast<uint64_t>(i));
    values.push_back(static_cast<float>(i % channels + which) + 4 * to_unit_float(bits) - 2);
  }
  return Tensor::from(values, {rows, channels});
}

struct Moments {
  std::vector<double> mean = std::vector<double>(channels), variance = std::vector<double>(channels);  // unbiased
};
Moments moments_of(const Tensor& x) {
  const Floats values = x.to_vector<float>();
  Moments moments;
  for (size_t i = 0; i < values.size(); ++i) moments.mean[i % channels] += values[i] / double{rows};
  for (size_t i = 0; i < values.size(); ++i) {
    moments.variance[i % channels] += std::pow(values[i] - moments.mean[i % channels], 2) / (rows - 1);
  }
  return moments;
}

// A batch norm whose output is weighed, so that its parameters have gradients.
class Norm : public Module {
 public:
  Norm() { add_child("norm", norm_); }
  Tensor forward(const Tensor& x) override { return sum(mul(norm_.forward(x), values_of(77))); }

 private:
  BatchNorm2d norm_{channels};
};

const Tensor& named(const ParameterArena& arena, const std::string& name) {
  return *std::ranges::find(arena.parameters(), name, &NamedParameter::name)->value;
}

void check_close(const Tensor& got, const std::vector<double>& expected) {
  const examples::Comparison result = examples::compare(examples::to_numbers(got), expected, {2e-6, 2e-6, 0});
  CHECK_MESSAGE(result.passed, result.summary);
}

struct Training {
  const AmbientScope scope;
  Norm model;
  ParameterArena arena{model};
  std::unique_ptr<Optimizer> optimizer;
  GradScaler scaler;

  explicit Training(const OptimizerConfig& config = {}, const GradScalerConfig& scaling = {})
      : optimizer(make_optimizer(arena, config)), scaler(scaling, Device::cpu) {
    ambient().training = true;
  }
  void micro_batch(uint32_t which) {
    const Tensor loss = model.forward(values_of(which));
    backward(loss, scaler.loss_gradient(1));
  }
  void step(const std::vector<uint32_t>& micro_batches) {
    optimizer->zero_gradients();
    for (const uint32_t which : micro_batches) micro_batch(which);
    optimizer->step(scaler, {}, std::ssize(micro_batches));
  }
  const Tensor& mean() const { return named(arena, "norm.running_mean"); }
  const Tensor& variance() const { return named(arena, "norm.running_var"); }
};

}  // namespace

TEST_CASE(
    "the running mean and variance follow PyTorch's rule, several micro-batches as their mean, whatever the scale") {
  for (const float scale : {1.0f, 1024.0f}) {
    for (const float momentum : {0.1f, 0.4f}) {
      Training training({.learning_rate = 0.1f, .weight_decay = 0.5f, .clip = 1e-3f, .statistics_momentum = momentum},
                        {.enabled = true, .initial = scale});
      std::vector<double> mean(channels), variance(channels, 1);
      for (const std::vector<uint32_t>& micro_batches : {std::vector<uint32_t>{0}, {1}, {3, 5, 9}, {2, 7}}) {
        training.step(micro_batches);
        const double share = double{momentum} / static_cast<double>(micro_batches.size());
        for (size_t c = 0; c < channels; ++c) mean[c] *= 1 - double{momentum}, variance[c] *= 1 - double{momentum};
        for (const uint32_t which : micro_batches) {
          const Moments measured = moments_of(values_of(which));
          for (size_t c = 0; c < channels; ++c) {
            mean[c] += share * measured.mean[c];
            variance[c] += share * measured.variance[c];
          }
        }
        check_close(training.mean(), mean);
        check_close(training.variance(), variance);
      }
    }
  }
}

TEST_CASE("a skipped step leaves the statistics alone, and what they measured is not looked at") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  Training training({.learning_rate = 0.1f}, {.enabled = true, .initial = 8});
  training.step({1});
  const Floats before = training.arena.values.to_vector<float>();
  training.optimizer->zero_gradients();
  training.micro_batch(2);
  named(training.arena, "norm.weight").grad().mutable_data<float>()[0] = inf;
  training.optimizer->step(training.scaler);
  CHECK(training.scaler.skipped() == 1);
  CHECK(training.arena.values.to_vector<float>() == before);
  training.step({2});
  CHECK(training.scaler.skipped() == 1);
  CHECK(training.arena.values.to_vector<float>() != before);
  // A variance too large for f32 says nothing of the gradients.
  training.optimizer->zero_gradients();
  training.micro_batch(3);
  training.variance().grad().mutable_data<float>()[0] = inf;
  training.optimizer->step(training.scaler);
  CHECK(training.scaler.skipped() == 1);
}

namespace {

// Norms that are in training, or keep their statistics, one after another.
class SomeFrozen : public Module {
 public:
  SomeFrozen() {
    for (size_t i = 0; i < norms_.size(); ++i) add_child(std::to_string(i), norms_[i]);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (size_t i = 0; i < norms_.size(); ++i) {
      const AmbientScope scope;
      ambient().training = is_training[i];
      y = norms_[i].forward(y);
    }
    return sum(mul(y, values_of(77)));
  }
  std::array<bool, 3> is_training = {};

 private:
  std::array<BatchNorm2d, 3> norms_{BatchNorm2d(channels), BatchNorm2d(channels), BatchNorm2d(channels)};
};

}  // namespace

TEST_CASE("statistics that no micro-batch measured stay what they are, beside others that move") {
  for (unsigned which = 0; which < 8; ++which) {
    CAPTURE(which);
    SomeFrozen model;
    for (size_t i = 0; i < 3; ++i) model.is_training[i] = (which >> i & 1) != 0;
    ParameterArena arena(model);
    const auto optimizer = make_optimizer(arena, {});
    for (uint32_t step = 0; step < 3; ++step) {
      optimizer->zero_gradients();
      backward(model.forward(values_of(step)));
      optimizer->step();
    }
    for (size_t i = 0; i < 3; ++i) {
      const std::string norm = std::to_string(i);
      const bool moved = named(arena, norm + ".running_mean").to_vector<float>() != Floats(channels);
      CHECK(moved == model.is_training[i]);
      CHECK((named(arena, norm + ".running_var").to_vector<float>() != Floats(channels, 1)) == moved);
    }
  }
}

namespace {

// Parameters, with a statistic between them or without.
class Mixed : public Module {
 public:
  explicit Mixed(bool has_statistic) {
    add_parameter("vector", vector_, ParameterRole::bias);
    if (has_statistic) add_statistic("statistic", statistic_);
    add_parameter("matrix", matrix_, ParameterRole::matrix);
  }
  Tensor forward(const Tensor& x) override { return x; }
  Tensor vector_ = uniform_init({70}, 1, 5, 1, 0), matrix_ = uniform_init({9, 30}, 1, 5, 1, 1),
         statistic_ = uniform_init({130}, 1, 5, 1, 2);
};

}  // namespace

TEST_CASE("what is trained has the same bits with and without statistics, for every optimizer") {
  for (const char* name : {"sgd", "nesterov", "adam", "adamw", "lars", "lamb", "muon", "schedule-free"}) {
    for (const DType casts : {DType::f32, DType::bf16}) {
      CAPTURE(name);
      std::vector<std::vector<Floats>> results;
      for (const bool has_statistic : {false, true}) {
        const AmbientScope scope;
        Mixed model(has_statistic);
        ParameterArena arena(model);
        CHECK(model.parameter_count() == 70 + 270);
        CHECK(model.parameter_count(true) == (has_statistic ? 130 : 0));
        CHECK(arena.statistics_size() == (has_statistic ? 192 : 0));
        const auto optimizer =
            make_optimizer(arena, {.name = name,
                                   .learning_rate = 0.1f,
                                   .weight_decay = 0.1f,
                                   .decay_vectors = false,
                                   .clip = 0.5f,
                                   .average_decay = name == std::string("schedule-free") ? 0 : 0.5f});
        if (casts != DType::f32) arena.cast_parameters(casts);
        Floats before;
        for (int step = 0; step < 3; ++step) {
          arena.gradients().copy_from(arena.values);
          if (has_statistic) {
            before = model.statistic_.to_vector<float>();
            model.statistic_.grad_info()->writes = 1;
            model.statistic_.grad().copy_from(Tensor::from(Floats(130, 1000.0f * static_cast<float>(step)), {130}));
          }
          optimizer->step();
        }
        std::vector<Floats> result = {model.vector_.to_vector<float>(), model.matrix_.to_vector<float>()};
        for (const auto& [moment, tensor] : optimizer->memory()) {
          const Floats values = tensor.to_vector<float>();
          const auto skipped = moment == "average" ? arena.statistics_size() : 0;
          result.emplace_back(values.begin() + skipped, values.end());
        }
        if (casts != DType::f32) {
          CHECK(arena.values.version() == model.matrix_.grad_info()->cast_version);
          result.push_back(cast(model.matrix_.grad_info()->cast, DType::f32).to_vector<float>());
          CHECK(result.back() == cast(cast(model.matrix_.detach(), casts), DType::f32).to_vector<float>());
        }
        if (has_statistic) {
          const Floats now = model.statistic_.to_vector<float>();
          for (size_t i = 0; i < now.size(); ++i) CHECK(now[i] == before[i] + 0.1f * (2000 - before[i]));
        }
        results.push_back(result);
      }
      CHECK(results[0] == results[1]);
    }
  }
}

}  // namespace hs::test
