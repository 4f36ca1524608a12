// A staged model with dropout before and inside the checkpointed stages, trained with every kind of segments, on the
// CPU (tests/models/checkpoint_models.cpp) and on the CUDA device or its emulator (tests/cuda/checkpoint.cpp).
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/measure/observers/kernel_trace.h"
#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/checkpoint.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/layers.h"
#include "models/training/checkpoint_plan.h"
#include "tests/support/random_tensor.h"

namespace hs::test {

using bench::measure::KernelCall;
using bench::measure::KernelTrace;

// (N, 12, 12, 1) -> (N, 10)
class SmallStaged : public StagedModel {
 public:
  SmallStaged()
      : conv1_(1, 4, {}, keys_),
        norm1_(4, {.relu = true}),
        conv2_(4, 8, {}, keys_),
        dropout1_(0.25, keys_),
        dropout2_(0.25, keys_),
        linear1_(128, 16, keys_),
        dropout3_(0.5, keys_),
        linear2_(16, 10, keys_) {
    add_child("conv1", conv1_);
    add_child("norm1", norm1_);
    add_child("conv2", conv2_);
    add_child("linear1", linear1_);
    add_child("linear2", linear2_);
    add_stage("conv1", [this](const Tensor& x) { return dropout1_.forward(norm1_.forward(conv1_.forward(x))); });
    add_stage("conv2", [this](const Tensor& x) { return relu(conv2_.forward(x)); });
    add_stage("pool", [this](const Tensor& x) { return dropout2_.forward(max_pool2d(x, 2, 2)); });
    add_stage("linear1", [this](const Tensor& x) {
      return dropout3_.forward(relu(linear1_.forward(x.reshape({x.shape()[0], 128}))));
    });
    add_stage("linear2", [this](const Tensor& x) { return linear2_.forward(x); });
  }

 private:
  LayerKeys keys_{1};
  Conv2d conv1_;
  BatchNorm2d norm1_;
  Conv2d conv2_;
  Dropout dropout1_, dropout2_;
  Linear linear1_;
  Dropout dropout3_;
  Linear linear2_;
};

struct CheckpointOutcome {
  std::vector<std::vector<float>> gradients;  // of each parameter, in each step
  std::vector<float> losses, weights;
  std::map<std::string, int> kernels;  // calls of each slot in the last step
  int64_t peak = 0, predicted = 0;     // of the last step
  bool operator==(const CheckpointOutcome& other) const {
    return gradients == other.gradients && losses == other.losses && weights == other.weights;
  }
};

// How to set up or run the model for a checkpoint plan.
struct CheckpointPlanCase {
  std::string name;
  std::function<std::vector<Segment>(const StepCosts& costs)> segments;
  std::function<Tensor(SmallStaged& model, const Tensor& x)> forward;  // empty: the model's own
};

inline CheckpointOutcome train_checkpointed(Device device, Precision precision, const CheckpointPlanCase& plan) {
  constexpr int64_t N = 3;
  const AmbientScope scope;
  SmallStaged model;
  ParameterArena arena(model, device);
  OptimizerConfig config;
  config.learning_rate = 0.01f;
  const auto optimizer = make_optimizer(arena, config);
  GradScaler scaler({.enabled = precision == Precision::f16, .initial = 1024}, device);
  ambient().training = true;
  ambient().seed = 21;
  ambient().step = optimizer->step_counter();
  const Tensor images = random_tensor({N, 12, 12, 1}, 8, -0.25, 0.75).to(device);
  const Tensor labels = Tensor::from(std::vector<int32_t>{7, 1, 4}, {N}).to(device);
  CheckpointOutcome outcome;
  const auto live = [&] { return memory_stats(device).live_by_purpose; };
  for (int step = 0; step < 3; ++step) {
    const Autocast amp(precision, arena);
    if (step == 2) {  // one-time allocations are done
      const StepCosts costs = measure_stages(model, images, labels);
      if (plan.segments) {
        model.set_segments(plan.segments(costs));
        outcome.predicted = predict(costs, model.segments()).peak;
      }
    } else if (plan.segments) {
      model.set_segments(plan.segments(StepCosts{.stages = std::vector<StageCost>(6)}));
    }
    optimizer->zero_gradients();
    const BytesByPurpose before = live();
    reset_peak(device);
    {
      const KernelTrace trace;
      const Tensor loss =
          softmax_cross_entropy(plan.forward ? plan.forward(model, images) : model.forward(images), labels);
      backward(loss, scaler.loss_gradient(1));
      outcome.losses.push_back(static_cast<float>(loss.item()));
      outcome.kernels.clear();
      for (const KernelCall& call : trace.calls()) ++outcome.kernels[call.slot];
    }
    outcome.peak = static_cast<int64_t>(memory_stats(device).peak);
    if (step > 0) CHECK(live() == before);  // parameters, gradients, optimizer, and the images of this test
    CHECK(live()[static_cast<size_t>(MemoryPurpose::activations)] == 0);
    CHECK(live()[static_cast<size_t>(MemoryPurpose::gradients)] == arena.gradients().bytes());
    for (const NamedParameter& parameter : arena.parameters()) {
      outcome.gradients.push_back(parameter.value->grad().to_vector<float>());
      CHECK(outcome.gradients.back() != std::vector<float>(outcome.gradients.back().size()));  // the first block's too
    }
    optimizer->step(scaler);
  }
  outcome.weights = arena.values.to_vector<float>();
  return outcome;
}

inline CheckpointPlanCase fixed_plan(std::vector<Segment> segments) {
  std::string name;
  for (const Segment& s : segments) name += fmt::format("[{}, {}) ", s.begin, s.end);
  return {name, [segments = std::move(segments)](const StepCosts&) { return segments; }, {}};
}

inline std::vector<CheckpointPlanCase> checkpoint_plans() {
  std::vector<CheckpointPlanCase> plans;
  for (size_t i = 0; i < 5; ++i) plans.push_back(fixed_plan({{i, i + 1}}));
  plans.push_back(fixed_plan({{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}));
  plans.push_back(fixed_plan({{0, 5}}));
  plans.push_back(fixed_plan({{0, 2}, {2, 4}}));
  plans.push_back(fixed_plan({{1, 4}}));
  const auto budget = [](const std::function<std::vector<Segment>(const StepCosts&)>& choose) {
    return [choose](const StepCosts& costs) { return costs.fixed ? choose(costs) : std::vector<Segment>(); };
  };
  plans.push_back({"smallest budget",
                   budget([](const StepCosts& costs) { return fastest_within(costs, smallest_budget(costs)); }),
                   {}});
  plans.push_back({"auto", budget([](const StepCosts& costs) { return smallest_for_time(costs); }), {}});
  plans.push_back({"nested", {}, [](SmallStaged& model, const Tensor& x) {
                     const auto stage = [&model](size_t i) { return model.stages()[i].forward; };
                     const Tensor y = stage(0)(x);
                     return stage(4)(checkpoint(
                         [stage](const Tensor& a) {
                           return checkpoint(
                               stage(3),
                               checkpoint([stage](const Tensor& b) { return stage(2)(checkpoint(stage(1), b)); }, a));
                         },
                         y));
                   }});
  return plans;
}

inline void check_checkpointed_training(Device device) {
  for (const Precision precision : {Precision::f32, Precision::f16, Precision::bf16}) {
    CAPTURE(hs::name(precision));
    const CheckpointOutcome off = train_checkpointed(device, precision, fixed_plan({}));
    CHECK(off.losses[2] != off.losses[0]);
    for (const CheckpointPlanCase& plan : checkpoint_plans()) {
      CAPTURE(plan.name);
      const CheckpointOutcome on = train_checkpointed(device, precision, plan);
      CHECK((on == off));
      if (!plan.forward) CHECK(on.peak <= on.predicted);
    }
    CHECK(off.peak <= off.predicted);
  }
}

}  // namespace hs::test
