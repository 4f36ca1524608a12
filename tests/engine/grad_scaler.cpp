// Loss scaling, skipped steps, clipping and learning-rate schedules, on the CPU: what a step with them means. That the
// CUDA kernels give the same bits: tests/cuda/optimizer.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>

#include "engine/autograd.h"
#include "engine/random.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/compare.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"
#include "kernels/reduce/reduce.h"
#include "tests/support/thrown.h"

namespace hs::test {
using namespace examples;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

using State = std::vector<float>;  // the scale, finite steps since it last changed, and perhaps steps skipped

// Two parameters, so that the norm of all gradients is not that of one; forward gives sum(large * x) + small.
class Two : public Module {
 public:
  Two() {
    add_parameter("small", small_, ParameterRole::bias);
    add_parameter("large", large_, ParameterRole::matrix);
    for (int64_t i = 0; i < 300; ++i) large_.mutable_data<float>()[i] = 1.0f / static_cast<float>(i + 1);
  }
  Tensor forward(const Tensor& x) override { return add(sum(mul(large_.reshape({300}), x)), small_.reshape({})); }

 private:
  Tensor small_ = Tensor::zeros({1}, DType::f32), large_ = Tensor::zeros({10, 30}, DType::f32);
};

// A model, its optimizer and its scaler. Gradients are random numbers of each step, times the scale.
struct Training {
  Two model;
  ParameterArena arena{model};
  GradScaler scaler;
  std::unique_ptr<Optimizer> optimizer;

  Training(const OptimizerConfig& config, const GradScalerConfig& scaling)
      : scaler(scaling, Device::cpu), optimizer(make_optimizer(arena, config)) {}

  void set_gradients(uint32_t step) {
    const auto scale = static_cast<float>(scaler.scale());
    for (const NamedParameter& parameter : arena.parameters()) {
      Tensor& gradient = parameter.value->grad();
      for (int64_t i = 0; i < gradient.size(); ++i) {
        const uint32_t bits = random_bits({3, RandomPurpose::synthetic, step, 0, 0}, static_cast<uint64_t>(i));
        gradient.mutable_data<float>()[i] = scale * (2 * to_unit_float(bits) - 1);
      }
    }
  }
  void take_step(uint32_t step) {
    set_gradients(step);
    optimizer->step(scaler);
  }
  std::vector<float> weights() const { return arena.values.to_vector<float>(); }
};

const char* const optimizers[] = {"sgd", "nesterov", "adam", "adamw", "lars", "lamb", "muon", "schedule-free"};
const GradScalerConfig scaled_by_1024{.enabled = true, .initial = 1024};

TEST_CASE("the scale grows after an interval of finite steps and falls with each overflow, between floor and cap") {
  struct Row {
    bool finite;
    State after;
  };
  const std::vector<Row> table = {
      {true, {8, 1}},   {true, {8, 2}},  {true, {16, 0}},                   // the third grows
      {true, {16, 1}},  {true, {16, 2}}, {false, {8, 0}},                   // an overflow starts the count over
      {true, {8, 1}},   {true, {8, 2}},  {true, {16, 0}},                   //
      {true, {16, 1}},  {true, {16, 2}}, {true, {20, 0}},                   // the cap, not 32
      {true, {20, 1}},  {true, {20, 2}}, {true, {20, 0}},                   //
      {false, {10, 0}}, {false, {5, 0}}, {false, {3, 0}}, {false, {3, 0}},  // the floor, not 2.5
      {true, {3, 1}},   {true, {3, 2}},  {true, {6, 0}}};
  const GradScalerConfig config{.enabled = true, .initial = 8, .smallest = 3, .largest = 20, .growth_interval = 3};
  CHECK(GradScaler(config, Device::cpu).state().to_vector<float>() == State{8, 0, 0});
  State state = {8, 0};
  for (size_t i = 0; i < table.size(); ++i) {
    CAPTURE(i);
    update_scale(config, table[i].finite, state.data());
    CHECK(state == table[i].after);
  }
}

TEST_CASE("growth and backoff are factors of their own, and the defaults are those of PyTorch") {
  const GradScalerConfig config{.enabled = true, .growth = 4, .backoff = 0.125f, .growth_interval = 1};
  State state = {64, 0};
  update_scale(config, true, state.data());
  CHECK(state == State{256, 0});
  update_scale(config, false, state.data());
  CHECK(state == State{32, 0});
  const GradScalerConfig usual{.enabled = true};
  CHECK(GradScaler(usual, Device::cpu).scale() == 65536);
  state = {65536, 0};
  for (int step = 0; step < 1999; ++step) update_scale(usual, true, state.data());
  CHECK(state == State{65536, 1999});
  update_scale(usual, true, state.data());
  CHECK(state == State{131072, 0});
  update_scale(usual, false, state.data());
  CHECK(state == State{65536, 0});
}

TEST_CASE("the loss's gradient is scale times weight, and gradients of weighted micro-batches add up to it") {
  Training training({}, scaled_by_1024);
  CHECK(training.scaler.loss_gradient(1).item() == 1024);
  const Tensor x = Tensor::from(std::vector<float>(300, 3), {300});
  for (const float weight : {0.75f, 0.25f}) {
    const Tensor dloss = training.scaler.loss_gradient(weight);
    CHECK(dloss.item() == 1024 * weight);
    CHECK(dloss.shape() == Shape{});
    backward(training.model.forward(x), dloss);
  }
  CHECK(training.arena.parameters()[0].value->grad().item() == 1024);
  CHECK(training.arena.parameters()[1].value->grad().to_vector<float>() == std::vector<float>(300, 3072));
  CHECK(training.scaler.scale() == 1024);
}

TEST_CASE("a step with one bad gradient is left out: weights, state, counter and schedule are as if it had not been") {
  for (const char* name : optimizers) {
    for (const float bad : {inf, -inf, nan}) {
      for (const size_t place : {size_t{0}, size_t{64}, size_t{363}}) {  // small, and the ends of large
        INFO(name, ", ", bad, " at ", place);
        OptimizerConfig config{.name = name, .learning_rate = 0.01f, .weight_decay = 0.1f};
        config.schedule = {name == std::string("schedule-free") ? ScheduleKind::constant : ScheduleKind::linear, 2, 8};
        Training skips(config, scaled_by_1024), leaves_out(config, scaled_by_1024);
        for (uint32_t step = 0; step < 6; ++step) {
          if (step == 1 || step == 4) {
            const auto before = skips.weights();
            skips.set_gradients(step);
            skips.arena.gradients().mutable_data<float>()[place] = bad;
            skips.optimizer->step(skips.scaler);
            CHECK(skips.weights() == before);
            continue;
          }
          skips.take_step(step);
          leaves_out.take_step(step);
          CHECK(skips.weights() == leaves_out.weights());
        }
        CHECK(skips.optimizer->steps() == 4);
        CHECK(skips.scaler.skipped() == 2);
        CHECK(skips.scaler.scale() == 256);
        CHECK(leaves_out.scaler.skipped() == 0);
      }
    }
  }
}

TEST_CASE("a step is skipped for a bad gradient too if only clipping looks at the gradients") {
  Training training({.name = "sgd", .clip = 1}, {});
  const auto before = training.weights();
  training.set_gradients(0);
  training.arena.gradients().mutable_data<float>()[64] = nan;
  training.optimizer->step(training.scaler);
  CHECK(training.weights() == before);
  CHECK(training.optimizer->steps() == 0);
  CHECK(training.scaler.state().to_vector<float>() == State{1, 0, 1});  // and counted
  training.optimizer->step();  // the optimizer counts where it is given no scaler
  CHECK(training.optimizer->skipped() == 1);
  CHECK(training.optimizer->steps() == 0);
}

TEST_CASE("a step whose norm is beyond f32 is skipped and counted, not taken with gradients of zero") {
  for (const char* name : optimizers) {
    for (const GradScalerConfig& scaling : {GradScalerConfig{}, scaled_by_1024}) {
      Training training({.name = name, .weight_decay = 0.1f, .clip = 1}, scaling);
      training.take_step(0);
      const auto before = training.weights();
      training.arena.gradients().mutable_data<float>()[64] = 1e25f;  // finite, but its square is not
      training.optimizer->step(training.scaler);
      CHECK(training.weights() == before);
      CHECK(training.optimizer->steps() == 1);
      CHECK(training.scaler.skipped() == 1);
      CHECK(training.scaler.scale() == (scaling.enabled ? 512 : 1));
    }
    Training not_clipped({.name = name}, scaled_by_1024);
    not_clipped.arena.gradients().mutable_data<float>()[64] = 1e25f;
    not_clipped.optimizer->step(not_clipped.scaler);
    CHECK(not_clipped.optimizer->steps() == 1);
    CHECK(not_clipped.scaler.skipped() == 0);
  }
}

TEST_CASE("the scale drops out: gradients times 2^10, times 2^11 and unscaled give the same bits, clipped or not") {
  for (const char* name : optimizers) {
    for (const float clip : {0.0f, 0.5f}) {
      CAPTURE(name);
      CAPTURE(clip);
      const OptimizerConfig config{.name = name, .learning_rate = 0.01f, .weight_decay = 0.1f, .clip = clip};
      std::vector<std::vector<float>> weights;
      for (const float scale : {1.0f, 1024.0f, 2048.0f}) {
        Training training(config, {.enabled = scale != 1, .initial = scale, .growth_interval = 3});
        for (uint32_t step = 0; step < 7; ++step) training.take_step(step);
        weights.push_back(training.weights());
        CHECK(training.scaler.scale() == (scale == 1 ? 1 : 4 * scale));
      }
      CHECK(weights[1] == weights[0]);
      CHECK(weights[2] == weights[0]);
    }
  }
}

// One step of plain gradient descent at a learning rate of 1: the weights fall by the gradient that the update saw.
std::vector<double> seen_by_update(float clip, float scale, float factor) {
  Training training({.name = "sgd", .learning_rate = 1, .momentum = 0, .clip = clip},
                    {.enabled = true, .initial = scale});
  training.arena.values.fill_zero();
  Tensor& small = training.arena.parameters()[0].value->grad();
  Tensor& large = training.arena.parameters()[1].value->grad();
  small.mutable_data<float>()[0] = scale * factor * 6;
  large.mutable_data<float>()[0] = scale * factor * -2;
  large.mutable_data<float>()[299] = scale * factor * 3;  // a norm of 7 * factor
  training.optimizer->step(training.scaler);
  const auto small_after = training.arena.parameters()[0].value->to_vector<float>();
  const auto large_after = training.arena.parameters()[1].value->to_vector<float>();
  CHECK(std::count(large_after.begin(), large_after.end(), 0.0f) == (factor == 0 ? 300 : 298));
  return {-small_after[0], -large_after[0], -large_after[299]};
}

TEST_CASE("clipping: the norm of all gradients together, after the scale is divided out") {
  const auto close = [](const std::vector<double>& got, double factor) {
    return compare(got, std::vector<double>{6 * factor, -2 * factor, 3 * factor}, tolerance::two_roundings).passed;
  };
  for (const float scale : {1.0f, 1024.0f, 65536.0f}) {
    CAPTURE(scale);
    CHECK(close(seen_by_update(2, scale, 1), 2.0 / 7));  // each of them alone, of 6, 2 and 3, would say otherwise
    CHECK(close(seen_by_update(6.5f, scale, 1), 6.5 / 7));
    // A norm below the limit, though not before unscaling: nothing changes, not even rounding.
    const std::vector<double> unchanged = {6, -2, 3};
    for (const float clip : {0.0f, 7.0f, 8.0f, inf}) CHECK(seen_by_update(clip, scale, 1) == unchanged);
    CHECK(close(seen_by_update(2, scale, 0.001f), double{0.001f}));
    CHECK(seen_by_update(2, scale, 0) == std::vector<double>{0, 0, 0});
  }
}

constexpr int every = 3;
constexpr float factor = 0.25f;
const std::vector<ScheduleKind> kinds = {ScheduleKind::constant, ScheduleKind::linear,    ScheduleKind::cosine,
                                         ScheduleKind::step,     ScheduleKind::one_cycle, ScheduleKind::exponential};

// As PyTorch's OneCycleLR, with its defaults.
double one_cycle_in_double(double total, double step) {
  const auto along_cosine = [](double start, double end, double x) {
    return end + (start - end) * (1 + std::cos(std::numbers::pi * std::min(x, 1.0))) / 2;
  };
  const double up = 0.3 * total - 1;
  if (step <= up) return along_cosine(1 / 25.0, 1, step / up);
  return along_cosine(1, 1 / 25e4, (step - up) / (total - 1 - up));
}

double schedule_in_double(ScheduleKind kind, double warmup, double total, double step) {
  if (step < warmup) return (step + 1) / (warmup + 1);
  if (kind == ScheduleKind::step) return std::pow(double{factor}, std::floor(step / every));
  if (kind == ScheduleKind::one_cycle) return one_cycle_in_double(total, step);
  const double progress = std::min(1.0, (step - warmup) / (total - warmup));
  if (kind == ScheduleKind::linear) return 1 - progress;
  if (kind == ScheduleKind::cosine) return (1 + std::cos(std::numbers::pi * progress)) / 2;
  if (kind == ScheduleKind::exponential) return std::pow(double{factor}, progress);
  return 1;
}

TEST_CASE("schedules follow their formulas in double, from the first step of warm-up to beyond the last") {
  for (const ScheduleKind kind : kinds) {
    for (const auto& [warmup, total] : {std::pair{0, 1}, {0, 2}, {0, 3}, {0, 10}, {1, 10}, {7, 100}, {500, 20000}}) {
      std::vector<double> got, expected;
      for (int step = 0; step < total + 5; ++step) {
        got.push_back(schedule_factor({kind, warmup, total, every, factor}, step));
        expected.push_back(schedule_in_double(kind, warmup, total, step));
      }
      const Comparison result = compare(got, expected, tolerance::optimizer);
      INFO("kind ", static_cast<int>(kind), ", warm-up ", warmup, " of ", total, ": ", result.summary);
      CHECK(result.passed);
    }
  }
  CHECK(schedule_factor({ScheduleKind::linear, 5, 5}, 4) == 5.0f / 6);  // all of it warm-up
  CHECK(schedule_factor({ScheduleKind::linear, 5, 5}, 5) == 0);
  CHECK(schedule_factor({ScheduleKind::step, 0, 0, 3, 0.25f}, 17) == 1.0f / 1024);  // the fifth power
  CHECK(schedule_factor({ScheduleKind::step, 0, 0, 1, 0.3f}, 3) == 0.3f * (0.3f * 0.3f));
  CHECK(schedule_factor({ScheduleKind::step, 0, 0, 1, 0.5f}, 1 << 30) == 0);
}

TEST_CASE("a step whose norm is unusual is left out, once there are norms to compare it with, and the scale stays") {
  Training training({.name = "adam", .outlier = 3}, scaled_by_1024);
  const auto take_step = [&](float gradient) {
    training.arena.gradients().mutable_data<float>()[0] = gradient * 1024;
    training.optimizer->step(training.scaler);
  };
  const auto mean = [&] { return training.optimizer->usual().to_vector<float>()[usual_norm]; };
  take_step(1);
  take_step(100);  // nothing is usual yet
  CHECK(training.scaler.skipped() == 0);
  CHECK(mean() == 50.5f);
  for (int i = 0; i < 18; ++i) take_step(1);
  CHECK(mean() == doctest::Approx(119.0 / 20).epsilon(1e-6));
  const auto before = training.weights();
  take_step(18);
  CHECK(training.weights() == before);
  CHECK(training.optimizer->steps() == 20);
  CHECK(training.scaler.state().to_vector<float>() == State{1024, 20, 1});
  CHECK(mean() == doctest::Approx(119.0 / 20).epsilon(1e-6));
  take_step(17);
  CHECK(training.weights() != before);
  CHECK(mean() == doctest::Approx((119.0 + 17) / 21).epsilon(1e-6));
  take_step(nan);  // one that is not finite is not usual either, and lowers the scale
  CHECK(training.scaler.state().to_vector<float>() == State{512, 0, 2});
  CHECK(mean() == doctest::Approx((119.0 + 17) / 21).epsilon(1e-6));
  for (int i = 0; i < 200; ++i) take_step(0.5f);  // a norm of 1, now that the scale is 512
  // Of the first 50 it is the mean; each later one counts by a fiftieth.
  CHECK(mean() == doctest::Approx(1 + ((136.0 + 29) / 50 - 1) * std::pow(0.98, 171)).epsilon(1e-5));
}

TEST_CASE("a step whose loss is unusual is left out in the same way, by the loss alone or by either") {
  for (const float outlier : {0.0f, 3.0f}) {
    Training training({.name = "adam", .outlier = outlier, .loss_outlier = 2}, scaled_by_1024);
    const auto take_step = [&](float gradient, float loss) {
      const auto scale = static_cast<float>(training.scaler.scale());
      training.arena.gradients().mutable_data<float>()[0] = gradient * scale;
      training.optimizer->step(training.scaler, Tensor::from(std::vector<float>{loss}, {}));
    };
    const auto usual = [&] { return training.optimizer->usual().to_vector<float>(); };
    for (int i = 0; i < 10; ++i) take_step(1, 0.5f), take_step(1, 1.5f);
    CHECK(training.scaler.skipped() == 0);
    CHECK(usual()[usual_loss] == doctest::Approx(1).epsilon(1e-6));
    CHECK(usual()[usual_norm] == doctest::Approx(outlier > 0 ? 1 : 0).epsilon(1e-6));
    CHECK(usual()[usual_count] == 20);
    const auto before = training.weights();
    const auto usual_before = usual();
    take_step(1, 2.01f);
    if (outlier > 0) take_step(3.01f, 1);
    CHECK(training.weights() == before);
    CHECK(usual() == usual_before);
    CHECK(training.scaler.scale() == 1024);
    const int64_t skipped = outlier > 0 ? 2 : 1;
    CHECK(training.scaler.skipped() == skipped);
    // One that is not finite is no outlier: the scale falls, as if a gradient were not.
    for (const float bad : {nan, inf}) take_step(1, bad);
    CHECK(training.weights() == before);
    CHECK(usual() == usual_before);
    CHECK(training.scaler.state().to_vector<float>() == State{256, 0, static_cast<float>(skipped) + 2});
    take_step(1, 1.99f);
    CHECK(training.weights() != before);
    CHECK(training.optimizer->steps() == 21);
  }
  Training training({.name = "sgd", .loss_outlier = 2}, {});
  CHECK_THROWS_WITH_AS(training.optimizer->step(training.scaler),
                       "optimizer: outliers of the loss, but step() was not given one", Error);
}

TEST_CASE("the average follows the weights, takes their place while it is wanted, and a skipped step leaves it") {
  Training training({.name = "sgd", .learning_rate = 0.1f, .average_decay = 0.5f}, scaled_by_1024);
  std::vector<float> start = training.weights();
  std::vector<double> expected(start.begin(), start.end());
  for (uint32_t step = 1; step <= 20; ++step) {
    training.take_step(step);
    const std::vector<float> now = training.weights();
    const double decay = std::min(0.5, (1.0 + step) / (10.0 + step));
    for (size_t i = 0; i < now.size(); ++i) expected[i] += (1 - decay) * (now[i] - expected[i]);
  }
  const std::vector<float> average = training.optimizer->average().to_vector<float>(), weights = training.weights();
  const Comparison result =
      compare(std::vector<double>(average.begin(), average.end()), expected, tolerance::optimizer);
  INFO(result.summary);
  CHECK(result.passed);
  {
    const WithAverage averaged(training.arena, *training.optimizer);
    CHECK(training.weights() == average);
  }
  CHECK(training.weights() == weights);
  training.arena.gradients().mutable_data<float>()[0] = inf;
  training.optimizer->step(training.scaler);
  CHECK(training.optimizer->average().to_vector<float>() == average);
  CHECK(training.optimizer->memory().contains("average"));
}

TEST_CASE("gradients of zero under a scale of 65536 move nothing and stay finite") {
  for (const char* name : optimizers) {
    for (const float clip : {0.0f, 1.0f}) {
      Training training({.name = name, .clip = clip}, {.enabled = true, .growth_interval = 1});
      const auto before = training.weights();
      for (int step = 0; step < 3; ++step) training.optimizer->step(training.scaler);
      CHECK(training.weights() == before);  // false for NaN
      CHECK(training.optimizer->steps() == 3);
      CHECK(training.scaler.scale() == 8 * 65536);
      training.take_step(0);
      for (const float weight : training.weights()) CHECK(std::isfinite(weight));
    }
  }
}

TEST_CASE("an unknown schedule is a usage error that names the known ones") {
  const std::vector<std::string> names = schedule_names();
  REQUIRE(names.size() == kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) CHECK(parse_schedule(names[i]) == kinds[i]);
  for (const char* name : {"", "Cosine", "cosine ", "one_cycle"}) {
    const std::string message = test::error_of([&] { parse_schedule(name); });
    CHECK(message ==
          "schedule " + std::string(name) + ": expected one of constant, linear, cosine, step, one-cycle, exponential");
  }
}

}  // namespace
}  // namespace hs::test
