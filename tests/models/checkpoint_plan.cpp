// The planner against brute force, its predictions against measured steps, and the words of --checkpoint.
#include <fmt/format.h>

#include <limits>

#include "engine/ambient.h"
#include "engine/autograd.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"
#include "models/training/checkpoint_plan.h"
#include "models/training/train_step.h"
#include "tests/support/random_stages.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rule_text.h"
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

StepCosts random_costs(uint32_t which, size_t stages) {
  Dice dice{5, which};
  StepCosts costs;
  costs.fixed = dice(0, 500);
  costs.stages = random_stages(dice, static_cast<int64_t>(stages) + 1, dice(1, 60));
  return costs;
}

// Every division of the stages into kept ones and segments.
void for_each_plan(size_t begin, size_t stages, std::vector<Segment>& so_far,
                   const std::function<void(const std::vector<Segment>&)>& visit) {
  if (begin == stages) return visit(so_far);
  for_each_plan(begin + 1, stages, so_far, visit);
  for (size_t end = begin + 1; end <= stages; ++end) {
    so_far.push_back({begin, end});
    for_each_plan(end, stages, so_far, visit);
    so_far.pop_back();
  }
}

struct Sample {
  Tensor input, labels;
};

Sample sample(const std::string& model, int64_t N) {
  if (model == "char_gpt") {
    const MemorySource text = rule_text(N, 32);
    const auto [tokens, labels] =
        prepare(InputKind::tokens, {Tensor::from(text.images(), {N, 1, 33, 1}), Tensor::from(text.labels(), {N})}, {});
    return {tokens, labels};
  }
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < N; ++n) labels.push_back(static_cast<int32_t>(n % 10));
  return {random_tensor({N, 28, 28, 1}, 6, -0.3, 0.7), Tensor::from(labels, {N})};
}

int64_t peak_of_step(StagedModel& model, const Sample& batch) {
  reset_peak(Device::cpu);
  const Tensor loss = softmax_cross_entropy(model.forward(batch.input), batch.labels);  // the logits go here
  backward(loss);
  return static_cast<int64_t>(memory_stats(Device::cpu).peak);
}

}  // namespace

TEST_CASE("for every budget the plan is the fastest that there is, found by trying them all") {
  for (const size_t stages : {1, 2, 3, 5, 7, 9, 10}) {
    for (uint32_t which = 0; which < (stages < 9 ? 20u : 3u); ++which) {
      CAPTURE(stages);
      CAPTURE(which);
      const StepCosts costs = random_costs(which, stages);
      std::vector<PlanFigures> all;
      std::vector<Segment> plan;
      for_each_plan(0, stages, plan, [&](const std::vector<Segment>& p) { all.push_back(predict(costs, p)); });
      int64_t smallest = std::numeric_limits<int64_t>::max(), largest = 0;
      for (const PlanFigures& figures : all) {
        smallest = std::min(smallest, figures.peak);
        largest = std::max(largest, figures.peak);
      }
      CHECK(smallest_budget(costs) == smallest);
      for (int64_t budget = smallest; budget <= largest; budget += 1 + (largest - smallest) / 25) {
        double fastest = 1e30;
        for (const PlanFigures& figures : all) {
          if (figures.peak <= budget) fastest = std::min(fastest, figures.extra_ms);
        }
        CAPTURE(budget);
        const PlanFigures got = predict(costs, fastest_within(costs, budget));
        CHECK(got.peak <= budget);
        CHECK(got.extra_ms == doctest::Approx(fastest));
      }
      const std::string message = error_of([&] { fastest_within(costs, smallest - 1); });
      CHECK(message.find(fmt::format("needs {} bytes or more", smallest)) != std::string::npos);

      const double share = 0.3;
      int64_t least = largest;
      for (const PlanFigures& figures : all) {
        if (figures.extra_ms <= share * costs.milliseconds()) least = std::min(least, figures.peak);
      }
      const PlanFigures automatic = predict(costs, smallest_for_time(costs, share));
      CHECK(automatic.extra_ms <= share * costs.milliseconds());
      CHECK(automatic.peak - least <= std::max<int64_t>(2, least / 500));
    }
  }
}

TEST_CASE("a step's peak is at or under the prediction, and within 5 % of it") {
  for (const std::string& name : model_names()) {
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      CAPTURE(name);
      CAPTURE(hs::name(precision));
      const AmbientScope scope;
      ambient().training = true;
      const ModelSizes of_text{1, 33, 1, rule_symbols, 4, InputKind::tokens, 64, 4};
      const auto model = make_model(name, 1, name == "char_gpt" ? of_text : ModelSizes{.blocks = 12});
      ParameterArena arena(*model);
      const Autocast amp(precision, arena);
      const Sample batch = sample(name, 8);
      const StepCosts costs = measure_stages(*model, batch.input, batch.labels);
      const size_t n = model->stages().size();
      REQUIRE(costs.stages.size() == n + 1);
      std::vector<std::vector<Segment>> plans = {{}, {{0, n}}, {{0, 1}}, {{n - 1, n}}};
      for (const int64_t every : {1, 2, 3, 5}) plans.push_back(segments_of({CheckpointChoice::Kind::every, every}, n));
      plans.push_back(fastest_within(costs, smallest_budget(costs)));
      plans.push_back(smallest_for_time(costs));
      for (const auto& plan : plans) {
        std::string text;
        for (const Segment& s : plan) text += fmt::format("[{}, {}) ", s.begin, s.end);
        CAPTURE(text);
        model->set_segments(plan);
        const int64_t predicted = predict(costs, plan).peak, measured = peak_of_step(*model, batch);
        CHECK(measured <= predicted);
        CHECK(static_cast<double>(measured) >= 0.95 * static_cast<double>(predicted));
      }
    }
  }
}

TEST_CASE("deep_cnn: the least budget is a small part of everything, and measuring takes no more than the half") {
  const auto model = make_model("deep_cnn", 1, {.blocks = 32});
  ParameterArena arena(*model);
  const Sample batch = sample("deep_cnn", 4);
  const StepCosts costs = measure_stages(*model, batch.input, batch.labels);
  const int64_t everything = predict(costs, {}).peak - costs.fixed;
  CHECK(smallest_budget(costs) - costs.fixed < everything * 2 / 5);
  CHECK(costs.measuring_peak - costs.fixed < everything / 2);
  for (const StageCost& stage : costs.stages) {
    CHECK(stage.forward_ms > 0);
    CHECK(stage.backward_ms > 0);
  }
}

TEST_CASE("--checkpoint: what it takes, and a sentence for what it does not") {
  using Kind = CheckpointChoice::Kind;
  CHECK(parse_checkpoint("off").kind == Kind::off);
  CHECK(parse_checkpoint("all").kind == Kind::every);
  CHECK(parse_checkpoint("all").value == 1);
  CHECK(parse_checkpoint("every=3").value == 3);
  CHECK(parse_checkpoint("budget=auto").kind == Kind::automatic);
  CHECK(parse_checkpoint("budget=5").value == 5);
  CHECK(parse_checkpoint("budget=5k").value == 5 << 10);
  CHECK(parse_checkpoint("budget=300M").value == int64_t{300} << 20);
  CHECK(parse_checkpoint("budget=2G").value == int64_t{2} << 30);
  for (const char* wrong :
       {"", "on", "every", "every=", "every=0", "every=-1", "every=2x", "every=99999999999999999999"}) {
    CHECK(
        error_of([&] { parse_checkpoint(wrong); }).starts_with(fmt::format("checkpoint {}: expected off, all", wrong)));
  }
  for (const char* wrong : {"", "0", "-5", "M", "5T", "5 M", "1.5M", "9000000000G", "99999999999999999999"}) {
    CHECK(error_of([&] {
            parse_checkpoint(std::string("budget=") + wrong);
          }).starts_with(fmt::format("checkpoint budget={}: expected a number of bytes", wrong)));
  }
  const auto every = segments_of(parse_checkpoint("every=3"), 8);
  CHECK(every == std::vector<Segment>{{0, 3}, {3, 6}, {6, 8}});
  CHECK(segments_of(parse_checkpoint("all"), 2) == std::vector<Segment>{{0, 1}, {1, 2}});
  CHECK(segments_of(parse_checkpoint("off"), 2).empty());
}

TEST_CASE("a model refuses segments that are not in order, empty, or beyond its stages") {
  const auto model = make_model("mnist_cnn", 1);
  for (const std::vector<Segment>& wrong :
       {std::vector<Segment>{{1, 1}}, {{2, 4}}, {{1, 2}, {0, 1}}, {{0, 2}, {1, 3}}, {{2, 1}}}) {
    CHECK_THROWS_AS(model->set_segments(wrong), Error);
  }
  model->set_segments({{0, 1}, {1, 3}});
  CHECK(model->segments().size() == 2);
}

}  // namespace hs::test
