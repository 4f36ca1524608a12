#include "bench/measure/memory_budget.h"

#include <fmt/ranges.h>

#include <bit>
#include <cmath>

#include "bench/cli/console.h"
#include "bench/cli/interrupt.h"
#include "bench/measure/techniques.h"
#include "bench/measure/train_part.h"
#include "engine/check.h"
#include "engine/storage.h"

namespace hs::bench::measure {
namespace {

constexpr double mebibyte = 1 << 20;
constexpr int64_t times_measured = 3;

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    all.push_back(d);
    if (d != number / d) all.push_back(number / d);
  }
  std::ranges::sort(all);
  return all;
}

int64_t whole_log2(int64_t number) { return std::bit_width(static_cast<uint64_t>(number)) - 1; }

// The micro-batches of one type: those that were measured, and what they say about the others.
class MicroBatches {
 public:
  MicroBatches(int64_t budget, int64_t samples, Precision precision, const MeasureMicroBatch& measure)
      : budget_(budget), samples_(samples), precision_(precision), measure_(measure) {}

  const std::map<int64_t, MicroBatch>& measured() const { return measured_; }

  const MicroBatch& add(int64_t batch) {
    const auto found = measured_.find(batch);
    return found != measured_.end() ? found->second
                                    : measured_.emplace(batch, measure_(batch, precision_)).first->second;
  }

  void explore(const std::vector<int64_t>& batches) {
    for (auto next = batches.rbegin(); next != batches.rend();) {
      const auto found = measured_.find(*next);
      if (found == measured_.end() && estimate(*next) <= budget_) {
        add(*next);
        next = batches.rbegin();  // a better estimate for the larger ones
        continue;
      }
      if (found != measured_.end() && found->second.kept() <= budget_) return;
      ++next;
    }
  }

  // About what measuring this one, and running it, needs, rather more than less. Needs are the largest of several sums
  // of a constant and something for each sample. So they are below a line between two that were measured. Beyond the
  // largest they are above the line through the last two, and below what they were if all but `constant` grew with the
  // samples: half way between. What is left over grows with a tree's sums: with the logarithm of the micro-batches.
  int64_t estimate(int64_t batch) const {
    if (const auto found = measured_.find(batch); found != measured_.end()) return needs(found->second);
    const auto of_batch = [](const MicroBatch& m) { return static_cast<double>(needs(m) - m.left_over); };
    const auto slope = [&](const MicroBatch& a, const MicroBatch& b) {
      return (of_batch(b) - of_batch(a)) / static_cast<double>(b.batch - a.batch);
    };
    const auto above = measured_.upper_bound(batch), below = std::prev(above);
    const MicroBatch &low = below->second, &first = measured_.begin()->second;
    double each = (of_batch(low) - static_cast<double>(low.constant)) / static_cast<double>(low.batch);
    if (above != measured_.end()) {
      each = slope(low, above->second);
    } else if (below != measured_.begin()) {
      each = (each + slope(std::prev(below)->second, low)) / 2;
    }
    const double left_over = static_cast<double>(first.left_over * whole_log2(samples_ / batch)) /
                             static_cast<double>(std::max<int64_t>(whole_log2(first.accumulate), 1));
    return std::llround(of_batch(low) + each * static_cast<double>(batch - low.batch) + left_over);
  }

 private:
  static int64_t needs(const MicroBatch& micro) { return std::max(micro.least(), micro.costs.measuring_peak); }

  const int64_t budget_, samples_;
  const Precision precision_;
  const MeasureMicroBatch& measure_;
  std::map<int64_t, MicroBatch> measured_;  // by batch
};

// Of those that were measured and fit, the one with the least time; the larger one if two have the same. `only`: the
// size that it must have, 0: any. False if there is none.
bool take_fastest(int64_t budget, int64_t only, MemoryPlan& plan) {
  double least = std::numeric_limits<double>::infinity();
  const MicroBatch* best = nullptr;
  for (const MicroBatch& micro : plan.considered) {
    const bool is_part_of_another = std::ranges::any_of(plan.considered, [&](const MicroBatch& other) {
      return other.precision == micro.precision && other.batch > micro.batch && other.kept() <= budget;
    });
    if (is_part_of_another || (only > 0 && micro.batch != only) || micro.least() > budget) continue;
    const double time = micro.milliseconds(micro.within(budget).predicted.extra_ms);
    if (time > least || (time == least && micro.batch < best->batch)) continue;
    least = time;
    best = &micro;
  }
  if (!best) return false;
  plan.chosen = *best;
  plan.checkpoint = best->within(budget);
  double without = least;
  for (const MicroBatch& micro : plan.considered) {
    if (micro.batch >= best->batch) without = std::min(without, micro.milliseconds());
  }
  plan.more_time = without > 0 ? least / without - 1 : 0;
  return true;
}

// Measures one step of all its micro-batches, with as few bytes as they need, and an evaluation of one batch.
MicroBatch measure_micro_batch(const Experiment& what, const SampleSource& train, const SampleSource& test) {
  Experiment once = what;
  once.checkpoint = {CheckpointChoice::Kind::smallest, times_measured};
  once.max_minutes = 1e-9;  // ends after the first step, with an evaluation
  once.patience = 0;
  once.validate_every = {.epochs = 1};
  once.optimizer.learning_rate = 1e-6f;  // whatever the user chose, this step does not diverge
  const Split split = split_of(what, train.info());
  // The samples to validate on may be more than those to test on.
  const SampleSource& tested = what.held_out > 0 ? train : test;
  const PartOfSamples batch(tested, 0, std::min(what.batch, tested.info().count), SampleOrder::as_it_is);
  MemoryStats after;
  TrainHooks hooks;
  hooks.on_step = [&](const Progress&) {
    cli::check_signals("while looking for what fits in --memory; no results were written");
    after = memory_stats(what.device);
  };
  const KernelUse use;
  const RunRecord run = run_experiment(once, train, batch, what.seed, hooks);
  const auto used = use.since();
  const auto live = [&](MemoryPurpose purpose) {
    return static_cast<int64_t>(after.live_by_purpose[static_cast<size_t>(purpose)]);
  };
  // What comes only later: the weights of the best validation, and sets that are kept on the device.
  int64_t later = 0;
  if (what.patience > 0) later += live(MemoryPurpose::parameters);
  if (what.loading.cache == CacheMode::device) {
    later += (test.info().count + split.held_out) * (train.info().image_bytes() + int64_t{sizeof(int32_t)});
  }
  MicroBatch micro;
  micro.batch = what.batch;
  micro.accumulate = what.accumulate;
  micro.precision = what.precision;
  micro.costs = run.plan->costs;
  micro.costs.fixed += later;
  // Part of `fixed` were also the first micro-batch's input and, of a text, its labels, which are as large.
  const int64_t input = micro.costs.stages[0].input * (train.info().is_text() ? 2 : 1);
  micro.left_over =
      std::max<int64_t>(static_cast<int64_t>(after.live) + later + input + step_scalars - micro.costs.fixed, 0);
  micro.other_peak = static_cast<int64_t>(run.peak_bytes) + later;
  micro.constant = live(MemoryPurpose::parameters) + live(MemoryPurpose::optimizer) + live(MemoryPurpose::gradients) +
                   later - micro.left_over;  // which are gradients, too
  micro.batch_norm = used.contains("batch_norm2d_forward");
  micro.dropout = used.contains("dropout_mask");
  return micro;
}

}  // namespace

int64_t MicroBatch::least() const { return std::max(smallest_budget(costs) + left_over, other_peak); }

int64_t MicroBatch::kept() const { return std::max(predict(costs, {}).peak + left_over, other_peak); }

CheckpointPlan MicroBatch::within(int64_t budget) const {
  std::vector<Segment> segments = fastest_within(costs, budget - left_over);
  PlanFigures figures = predict(costs, segments);
  figures.peak = std::max(figures.peak + left_over, other_peak);
  return {costs, std::move(segments), figures};
}

double MicroBatch::milliseconds(double extra) const {
  return static_cast<double>(accumulate) * (costs.milliseconds() + extra);
}

MemoryPlan choose_within(int64_t budget, const MemoryChoice& choice, const MeasureMicroBatch& measure) {
  MemoryPlan plan;
  const MeasureMicroBatch noted = [&](int64_t batch, Precision precision) {
    plan.considered.push_back(measure(batch, precision));
    return plan.considered.back();
  };
  const int64_t samples = choice.batch * choice.accumulate;
  const std::vector<int64_t> all = divisors(samples);
  std::vector<MicroBatches> types;
  for (const Precision precision : choice.precisions) types.emplace_back(budget, samples, precision, noted);
  const auto explore = [&](int64_t most) {
    const std::vector<int64_t> batches(all.begin(), std::ranges::upper_bound(all, most));
    for (MicroBatches& type : types) {
      if (type.measured().empty()) type.add(all.front());
      type.explore(batches);
      const auto largest = type.measured().find(most);
      if (largest != type.measured().end() && largest->second.kept() <= budget) return;
    }
  };
  types.front().add(all.front());
  if (plan.considered.front().batch_norm) {
    explore(choice.batch);
    if (take_fastest(budget, choice.batch, plan)) return plan;
  }
  explore(samples);
  if (take_fastest(budget, 0, plan)) return plan;
  // The estimates may be too high, and with the sums of a tree not even the smallest micro-batch needs the fewest
  // bytes: larger ones are tried until they need more even without such sums.
  int64_t least = std::numeric_limits<int64_t>::max();
  for (MicroBatches& type : types) {
    for (const int64_t batch : all) {
      const MicroBatch& micro = type.add(batch);
      least = std::min(least, micro.least());
      if (micro.least() <= budget || micro.least() - micro.left_over >= least) break;
    }
  }
  explore(samples);
  if (take_fastest(budget, 0, plan)) return plan;
  fail(
      ExitCode::usage,
      "memory {}: a step of {} samples needs {} bytes or more, in micro-batches and with all that is recomputed; use a "
      "larger budget or a smaller model",
      budget, samples, least);
}

namespace {

// The flag, as `train` has it.
class MemoryBudget : public TrainPart {
  using TrainPart::TrainPart;
  std::string text_;
  int64_t bytes_ = 0;
  std::optional<MemoryChoice> asked_;
  std::optional<MemoryPlan> plan_;

  bool is_on() const { return bytes_ > 0; }

  void declare(cli::Flags& flags) override {
    const auto read = [this](const std::string& bytes) {
      bytes_ = parse_bytes("memory ", bytes);
      text_ = bytes;
    };
    flags
        .text("--memory", common(cli::Group::memory).unrecorded(), read, "", "BYTES",
              "Choose micro-batch, segments to recompute and, with --precision auto, type to stay within; k, M, G")
        .record("memory_bytes", [this] { return is_on() ? Json(bytes_) : Json(nullptr); });
  }

  void refuse(const std::string& why) const { fail(ExitCode::usage, "--memory {}: {}", text_, why); }

  void check_flags(const cli::Flags& flags) override {
    if (!is_on()) return;
    if (flags.given("--checkpoint")) refuse("chooses what is recomputed, and so does --checkpoint; leave one out");
    int64_t& graph_steps = job_.residency.graph_steps;
    if (graph_steps > 1) {
      refuse(fmt::format("may accumulate, which a graph of {} steps cannot; leave --graph-steps out", graph_steps));
    }
    graph_steps = 1;
  }

  void with_device(const cli::Flags&) override {
    if (!is_on()) return;
    if (job_.is_saved) {
      refuse(
          "may choose another way when the run is resumed; run it once without --save and --resume, and give what it "
          "chooses as --batch, --accumulate and --checkpoint");
    }
    if (job_.ranks.is_on()) refuse("is for one process; give the ranks --batch, --accumulate and --checkpoint");
  }

  // Changes the experiment to the plan.
  void with_data(const cli::Flags&) override {
    if (!is_on()) return;
    Experiment& experiment = job_.experiment;
    const Precision half = half_precision(experiment.device);
    asked_ = {experiment.batch, experiment.accumulate, {experiment.precision}};
    if (!job_.settings.precision) asked_->precisions.push_back(experiment.precision == half ? Precision::f32 : half);
    const auto measure = [&](int64_t batch, Precision precision) {
      Experiment what = experiment;
      what.batch = batch;
      what.accumulate = experiment.batch * experiment.accumulate / batch;
      what.precision = precision;
      release_cached_memory(experiment.device);  // of other sizes
      return measure_micro_batch(what, *job_.data->train, *job_.data->test);
    };
    plan_ = choose_within(bytes_, *asked_, measure);
    release_cached_memory(experiment.device);
    experiment.batch = plan_->chosen.batch;
    experiment.accumulate = plan_->chosen.accumulate;
    experiment.precision = plan_->chosen.precision;
    experiment.checkpoint = {CheckpointChoice::Kind::given, 0, plan_->checkpoint.segments};
    if (!job_.quiet) cli::notice(line());
  }

  void after_run(RunRecord& run) override {
    if (is_on()) run.plan = plan_->checkpoint;
  }

  // What the plan changes.
  std::string bits() const {
    const MicroBatch& chosen = plan_->chosen;
    std::vector<std::string> changes;
    if (chosen.batch != asked_->batch) {
      changes.push_back(fmt::format("other rounding: micro-batches of {}", chosen.batch));
      if (chosen.batch_norm) changes.push_back(fmt::format("batch norm sees micro-batches of {}", chosen.batch));
      if (chosen.dropout) changes.emplace_back("other dropout masks");
    }
    if (chosen.precision != asked_->precisions[0]) {
      changes.push_back(fmt::format("other rounding: {}", hs::name(chosen.precision)));
    }
    return changes.empty() ? "same bits as without --memory" : fmt::format("{}", fmt::join(changes, ", "));
  }

  std::string line() const {
    const MicroBatch& chosen = plan_->chosen;
    int64_t recomputed = 0;
    for (const Segment& s : plan_->checkpoint.segments) recomputed += static_cast<int64_t>(s.end - s.begin);
    return fmt::format(
        "--memory {}: {}, {} of {} stages recomputed, {}: {:.1f} MiB predicted, about {:.0f} % more time than the "
        "fastest micro-batch that was measured; {}",
        text_,
        chosen.accumulate == 1 ? fmt::format("batch {}", chosen.batch)
                               : fmt::format("{} micro-batches of {}", chosen.accumulate, chosen.batch),
        recomputed, chosen.costs.stages.size() - 1, hs::name(chosen.precision),
        static_cast<double>(plan_->checkpoint.predicted.peak) / mebibyte, plan_->more_time * 100, bits());
  }

  void add_to_row(Json& row) const override {
    Json& plan = row["memory_plan"];
    if (!plan_) return;
    Json considered = Json::array();
    int64_t search_peak = 0;
    for (const MicroBatch& micro : plan_->considered) {
      const int64_t measuring = std::max(micro.costs.measuring_peak, micro.other_peak);
      search_peak = std::max(search_peak, measuring);
      considered.push_back({{"batch", micro.batch},
                            {"accumulate", micro.accumulate},
                            {"precision", hs::name(micro.precision)},
                            {"measuring_peak_bytes", measuring},
                            {"least_bytes", micro.least()},
                            {"kept_bytes", micro.kept()},
                            {"kept_ms", micro.milliseconds()}});
    }
    plan = {{"budget_bytes", bytes_},
            {"predicted_peak_bytes", plan_->checkpoint.predicted.peak},
            {"search_peak_bytes", search_peak},
            {"predicted_ms", plan_->chosen.milliseconds(plan_->checkpoint.predicted.extra_ms)},
            {"more_time", plan_->more_time},
            {"bits", bits()},
            {"considered", considered}};
  }
};

}  // namespace

MadePart make_memory_budget(TrainJob& job) { return std::make_unique<MemoryBudget>(job); }

}  // namespace hs::bench::measure
