// halfstep-bench tune lr: the range test for the learning rate (Smith, "Cyclical learning rates for training neural
// networks", 2017). The rate grows by the same ratio in each step of one short training, until the loss explodes; the
// useful rates lie where the loss falls. Its record has "rows", one per step: learning_rate, loss, smoothed; and
// "steepest" and "lowest", the rates at which the smoothed loss falls fastest (per decade), and is lowest.
#include <cmath>
#include <numeric>

#include "bench/commands/commands.h"
#include "bench/measure/step_flags.h"

namespace hs::bench::commands {
namespace {

struct Point {
  double learning_rate, loss, smoothed;
};

// An exponential moving average, without the bias of its beginning.
void smooth(std::vector<Point>& points) {
  constexpr double keep = 0.9;
  double sum = 0, weight = 0;
  for (Point& point : points) {
    sum = keep * sum + (1 - keep) * point.loss;
    weight = keep * weight + (1 - keep);
    point.smoothed = sum / weight;
  }
}

// Where the loss falls fastest before it is lowest, of neighbours five steps apart, so that the noise of a batch does
// not decide. None if it does not fall by more than its noise: a rate behind the explosion helps nobody.
const Point* steepest(const std::vector<Point>& points) {
  constexpr size_t apart = 5;
  constexpr double times_noise = 1.4;  // six deviations of the smoothed loss, whose noise is 0.23 of a batch's
  const auto lowest = static_cast<size_t>(std::ranges::min_element(points, {}, &Point::smoothed) - points.begin());
  constexpr size_t first = 2 * apart;  // until then the smoothed loss is nearly that of single batches
  if (lowest < first) return nullptr;
  double squares = 0, highest = 0;
  for (size_t i = 0; i <= lowest; ++i) {
    squares += std::pow(points[i].loss - points[i].smoothed, 2);
    if (i >= first) highest = std::max(highest, points[i].smoothed);
  }
  const double noise = std::sqrt(squares / static_cast<double>(lowest + 1));
  if (!(highest - points[lowest].smoothed > times_noise * noise)) return nullptr;
  const auto slope = [&](size_t i) {
    return (points[i].smoothed - points[i - apart].smoothed) /
           std::log10(points[i].learning_rate / points[i - apart].learning_rate);
  };
  size_t best = first;
  for (size_t i = first; i <= lowest; ++i) best = slope(i) < slope(best) ? i : best;
  return &points[best - apart / 2];
}

class LrFindCommand : public RecordingCommand {
  measure::StepFlags settings_;
  int64_t steps_ = 200, train_ = cli::automatic_samples;
  double from_ = 1e-6, to_ = 10;

  void declare(cli::Flags& flags) override {
    flags.examples({"tune lr", "tune lr --model mlp --optimizer nesterov --to 30 --html lr.html"},
                   "docs/chapters/09_recipes.md says how to read the curve.");
    settings_.experiment.optimizer.schedule.kind = ScheduleKind::exponential;
    settings_.declare(flags, {.rate = false});
    flags.real("--from", own(), from_, 1e-12, 1000, "Learning rate of the first step");
    flags.real("--to", own(), to_, 1e-12, 1e6, "Learning rate of the last step");
    flags.train(train_);
    flags.integer("--steps", own(), steps_, 20, 100000, "Steps, unless the loss explodes before");
  }

  // Trains until the loss explodes, and returns the steps that were finite.
  std::vector<Point> train(const cli::TrainingData& data) {
    measure::Experiment& experiment = settings_.experiment;
    const int64_t batch = experiment.batch * experiment.accumulate;
    const int64_t steps = (data.train->info().count + batch - 1) / batch;
    experiment.epochs = (steps_ + steps - 1) / steps;
    const double ratio = to_ / from_, last = static_cast<double>(steps_ - 1);
    experiment.optimizer.learning_rate = static_cast<float>(from_);
    experiment.optimizer.schedule.factor =
        static_cast<float>(std::pow(ratio, static_cast<double>(steps * experiment.epochs) / last));

    std::vector<Point> points;
    TrainHooks hooks;
    std::vector<double> losses;  // of the step's micro-batches
    hooks.on_loss = [&](const Tensor& loss) {
      cli::check_signals("while training; no results were written");
      losses.push_back(loss.item());
    };
    hooks.on_step = [&](const Progress&) {
      const double progress = static_cast<double>(points.size()) / last, count = static_cast<double>(losses.size());
      points.push_back({from_ * std::pow(ratio, progress), std::reduce(losses.begin(), losses.end()) / count, 0});
      losses.clear();
      smooth(points);
    };
    hooks.should_stop = [&] {
      constexpr double exploded = 4;
      const double lowest = std::ranges::min(points, {}, &Point::smoothed).smoothed;
      return static_cast<int64_t>(points.size()) >= steps_ || !(points.back().smoothed <= exploded * lowest);
    };
    try {
      measure::run_experiment(experiment, *data.train, *data.test, experiment.seed, hooks);
    } catch (const Error& error) {
      if (error.code() != ExitCode::numeric) throw;  // an infinite loss is where the range ends
    }
    std::erase_if(points, [](const Point& point) { return !std::isfinite(point.smoothed); });
    if (points.size() < 10) {
      fail(ExitCode::numeric, "the loss exploded after {} steps, from a learning rate of {:g}; try a smaller --from",
           points.size(), from_);
    }
    return points;
  }

  void run(const cli::Flags& flags) override {
    if (to_ <= from_) {
      fail(ExitCode::usage, "--to {}: expected more than --from {}", to_, from_);
    }
    outputs_.open();
    settings_.use();
    const measure::Experiment& experiment = settings_.experiment;
    if (!flags.given("--train")) train_ = steps_ * experiment.batch * experiment.accumulate;
    const cli::TrainingData data = cli::open_training_data(settings_.data, {train_, !flags.given("--train")},
                                                           {experiment.batch, true}, {settings_.context});
    const std::vector<Point> points = train(data);
    const Point *falls = steepest(points), &lowest = *std::ranges::min_element(points, {}, &Point::smoothed);

    Json record = report::new_record(name(), experiment.device, flags.config(), report::describe_data(data));
    record["rows"] = mapped(points, [](const Point& point) {
      return Json{{"learning_rate", point.learning_rate}, {"loss", point.loss}, {"smoothed", point.smoothed}};
    });
    record["steepest"] = falls ? Json(falls->learning_rate) : Json(nullptr);
    record["lowest"] = lowest.learning_rate;
    report::Table table = {.heads = {"", "learning rate", "smoothed loss"}, .lines = {}};
    const auto add = [&table](const char* what, const Point& point) {
      table.lines.push_back({what, fmt::format("{:.2g}", point.learning_rate), fmt::format("{:.4f}", point.smoothed)});
    };
    add("first step", points.front());
    if (falls) add("steepest fall", *falls);
    add("lowest", lowest);
    add("last step", points.back());
    outputs_.finish(
        record,
        fmt::format("{} on {}, batch {}, {}, {}, device {}, threads {}", experiment.model, data.train->info().name,
                    experiment.batch, experiment.optimizer.name, hs::name(experiment.precision),
                    hs::name(experiment.device), threads()),
        {table},
        {!falls
             ? "no rate stands out: the loss does not fall by more than its noise; give more --steps, or another model"
             : fmt::format("try --lr {:.1g} for a constant rate, and up to {:.1g} as the top of --schedule one-cycle",
                           falls->learning_rate, lowest.learning_rate / 3)});
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_lr_find_command() { return std::make_unique<LrFindCommand>(); }

}  // namespace hs::bench::commands
