// halfstep-bench profile memory: the memory of a training step by purpose, with and without checkpointing and
// accumulation, and how exact the planner's predictions are.
//
// Besides "data" and "config" its record has
//   rows               precision x checkpoint x accumulate: segments, predicted_peak_bytes, peak_bytes, at_peak (bytes
//                      by purpose), peak_by_purpose (at different times), step_ms, largest_batch (whose step has a
//                      peak within config.budget_bytes), weights_sha256, and timeline for accumulate 1
//   rows[].timeline    live bytes by purpose over one step: events, live_at_start and points {live}; a point for each
//                      event if there are at most 128, otherwise the largest in each of 128 intervals
//   accumulation_cost  forward and backward of micro_batches batches, and of one batch of the same total size
//   curve              with --curve: checkpoint off, budget=auto and ten budgets: bytes against time
#include <cmath>

#include "bench/commands/commands.h"
#include "bench/measure/one_step.h"
#include "bench/measure/row.h"
#include "bench/measure/step_flags.h"
#include "bench/measure/step_profile.h"

namespace hs::bench::commands {
namespace {

constexpr Precision precisions[] = {Precision::f32, Precision::bf16};
constexpr const char* checkpoints[] = {"off", "all", "budget=auto"};
constexpr int64_t accumulations[] = {1, 4};
constexpr int64_t micro_batches = 4;  // of the accumulation whose cost is measured
constexpr int curve_budgets = 10;
constexpr int64_t max_batch = 4096;

struct MeasuredStep {
  measure::RunRecord run;                       // with a plan
  MemoryStats memory;                           // after the last step, whose batches are live
  std::vector<measure::MemorySample> timeline;  // of one step
  double milliseconds = 0;                      // of a step, median

  const measure::CheckpointPlan& plan() const { return *run.plan; }
};

// One row of the table, or one point of the curve.
struct MemoryRow {
  Precision precision;
  std::string checkpoint;
  int64_t accumulate;
  MeasuredStep step;
  int64_t largest_batch = 0;  // rows only
};

// `count` samples, cycling through those of `samples`.
MemorySource repeated(const SampleSource& samples, int64_t count) {
  const SampleInfo& info = samples.info();
  std::vector<uint8_t> images(static_cast<size_t>(count * info.image_bytes()));
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < count; ++n) {
    samples.read(n % info.count, images.data() + n * info.image_bytes());
    labels.push_back(samples.label(n % info.count));
  }
  return {info, std::move(images), std::move(labels)};
}

// Each epoch is one step, so its hooks mark where a step begins and ends. The evaluation in between has one sample.
measure::RunRecord run_steps(measure::Experiment what, const SampleSource& samples, const CheckpointChoice& choice,
                             int64_t steps, const TrainHooks& hooks) {
  what.epochs = steps;
  what.checkpoint = choice;
  what.loading = {};  // no batch is made ahead of its step
  return run_experiment(what, repeated(samples, what.batch * what.accumulate), repeated(samples, 1), what.seed, hooks);
}

// Trains for one untimed and `steps` timed steps, each with all its micro-batches. Throws Error (usage) if no segments
// are possible.
MeasuredStep measure_step(measure::Experiment what, const SampleSource& samples, const CheckpointChoice& choice,
                          int64_t steps) {
  what.measures_stages = true;
  MeasuredStep measured;
  std::vector<double> times;
  std::optional<measure::Profiler> profiler;
  Clock::time_point start;
  TrainHooks hooks;
  hooks.on_epoch = [&](int64_t epoch, const EpochResult&) {
    check_signals();
    if (epoch == 1) profiler.emplace(what.device);
    runtime(what.device).synchronize();
    start = Clock::now();
  };
  hooks.on_step = [&](const Progress& progress) {
    runtime(what.device).synchronize();
    if (progress.epoch > 1) times.push_back(seconds_since(start) * 1e3);
    if (progress.epoch == 2) {
      measured.timeline = profiler->finish().memory;
      profiler.reset();
    }
    measured.memory = memory_stats(what.device);
  };
  measured.run = run_steps(what, samples, choice, 1 + steps, hooks);
  measured.milliseconds = median(times);
  return measured;
}

// The largest batch found, up to `most`, whose step with the segments of `known` has a peak of at most `budget`; each
// candidate is checked by running a step. 0: none.
int64_t largest_batch(const measure::Experiment& what, const MeasuredStep& known, const SampleSource& samples,
                      int64_t budget, int64_t most) {
  // A straight line: memory independent of the batch, plus a constant per sample that fits the known peak.
  int64_t constant = 0;
  for (const MemoryPurpose purpose : {MemoryPurpose::parameters, MemoryPurpose::gradients, MemoryPurpose::optimizer}) {
    constant += static_cast<int64_t>(known.memory.live_by_purpose[static_cast<size_t>(purpose)]);
  }
  const auto known_peak = static_cast<int64_t>(known.memory.peak);
  double per_sample = static_cast<double>(known_peak - constant) / static_cast<double>(what.batch);
  measure::Experiment larger = what;
  int64_t fits = known_peak <= budget ? what.batch : 0, too_large = most + 1;
  for (int tries = 0; tries < 4 && fits + 1 < too_large; ++tries) {
    check_signals();
    const auto on_line = static_cast<int64_t>(static_cast<double>(budget - constant) / per_sample);
    larger.batch = std::clamp(on_line, fits + 1, too_large - 1);
    if (budget <= constant || on_line <= fits) break;
    const CheckpointChoice same = {CheckpointChoice::Kind::given, 0, known.plan().segments};
    const auto peak = static_cast<int64_t>(run_steps(larger, samples, same, 1, {}).peak_bytes);
    (peak <= budget ? fits : too_large) = larger.batch;
    per_sample = static_cast<double>(peak - constant) / static_cast<double>(larger.batch);
  }
  return fits;
}

// A step of several batches compared with a step of one batch of the same total size; medians.
Json accumulation_cost(const measure::Experiment& what, const SampleSource& samples, int64_t repeats) {
  measure::OneStep step(what, samples.info());
  const auto pass = [&](int64_t count, int64_t batch) {
    const MemorySource set = repeated(samples, batch);
    Loader loader(set, {.batch = batch, .shuffle = false, .device = what.device});
    const std::vector<Batch> inputs(static_cast<size_t>(count), loader.next());
    return 1e3 * seconds_on(what.device, [&] { step.run(inputs); });
  };
  std::vector<double> accumulated, one_batch;
  for (int64_t r = 0; r <= repeats; ++r) {
    check_signals();
    const double parts = pass(micro_batches, what.batch), whole = pass(1, micro_batches * what.batch);
    if (r == 0) continue;  // warms up memory and threads
    accumulated.push_back(parts);
    one_batch.push_back(whole);
  }
  const double parts = median(accumulated), whole = median(one_batch);
  return {{"micro_batches", micro_batches},
          {"batch", what.batch},
          {"accumulated_ms", parts},
          {"one_batch_ms", whole},
          {"ratio", parts / whole}};
}

Json by_purpose(const BytesByPurpose& bytes) {
  Json json = Json::object();
  for (size_t p = 0; p < memory_purposes; ++p) json[hs::name(static_cast<MemoryPurpose>(p))] = bytes[p];
  return json;
}

Json timeline(const std::vector<measure::MemorySample>& memory) {
  const auto point = [](const measure::MemorySample& sample) { return Json{{"live", by_purpose(sample.live)}}; };
  return {{"events", memory.size() - 1},
          {"live_at_start", by_purpose(memory[0].live)},
          {"points", mapped(measure::thinned({memory.begin() + 1, memory.end()}, 128), point)}};
}

size_t activation_peak(const MeasuredStep& step) {
  return step.memory.peak_by_purpose[static_cast<size_t>(MemoryPurpose::activations)];
}

// What a step has in both tables; `between` comes before its time.
std::vector<report::Figure> figures_of(const MeasuredStep& step, const std::vector<report::Figure>& between) {
  std::vector<report::Figure> all = {
      {"stages", step.plan().costs.stages.size() - 1},
      {"segments", mapped(step.plan().segments, measure::segment_to_json)},
      {"predicted_peak_bytes", step.plan().predicted.peak, "predicted", "{:.1f}", report::to_mebibytes},
      {"peak_bytes", step.memory.peak, "peak MiB", "{:.1f}", report::to_mebibytes},
      {"predicted_extra_time", step.plan().predicted.extra_ms / step.plan().costs.milliseconds()},
      {"at_peak", by_purpose(step.memory.at_peak)},
      {"peak_by_purpose", by_purpose(step.memory.peak_by_purpose)},
      {"weights_sha256", step.run.weights_sha256}};
  all.insert(all.end(), between.begin(), between.end());
  all.push_back({"step_ms", step.milliseconds, "step ms", "{:.1f}"});
  return all;
}

// What to give `train` for half the bytes: of the rows with the same steps as the first, the one that takes the least
// time of those with at most half of its bytes, or the one with the fewest.
std::string command_for_half(const std::vector<MemoryRow>& rows) {
  const auto peak = [](const MemoryRow& row) { return static_cast<double>(row.step.memory.peak); };
  const MemoryRow &all = rows.front(), *best = nullptr, *fewest = &all;
  for (const MemoryRow& row : rows) {
    if (row.accumulate != all.accumulate) continue;
    if (peak(row) < peak(*fewest)) fewest = &row;
    if (2 * peak(row) > peak(all)) continue;
    if (!best || row.step.milliseconds < best->step.milliseconds) best = &row;
  }
  const MemoryRow& row = best ? *best : *fewest;
  if (&row == &all) return "half the bytes: nothing here has fewer; give train --memory BYTES, or a smaller --batch";
  std::string flags;
  if (row.precision != all.precision) flags += fmt::format(" --precision {}", hs::name(row.precision));
  if (row.checkpoint != all.checkpoint) flags += " --checkpoint " + row.checkpoint;
  return fmt::format(
      "{}: train{} ({:+.0f} %, {:.0f} % {} time)", best ? "half the bytes" : "no half of the bytes; the fewest", flags,
      (peak(row) / peak(all) - 1) * 100, std::abs(row.step.milliseconds / all.step.milliseconds - 1) * 100,
      row.step.milliseconds < all.step.milliseconds ? "less" : "more");
}

report::Rows curve_of(const std::vector<MemoryRow>& points) {
  report::Rows all{.table = {.title = "bytes against time"}};
  for (const MemoryRow& point : points) {
    const MeasuredStep &step = point.step, &off = points[0].step;
    const auto peak = static_cast<double>(activation_peak(step));
    std::vector<report::Figure> line =
        figures_of(step, {{"", peak, "activations MiB", "{:.1f}", report::to_mebibytes}});
    line.insert(line.begin(),
                {{"checkpoint", point.checkpoint, "checkpoint, f32"}, {"", step.plan().segments.size(), "segments"}});
    line.insert(line.end(),
                {{"extra_time", step.milliseconds / off.milliseconds - 1, "time", "{:+.1f} %", 100},
                 {"activations_saved", 1 - peak / static_cast<double>(activation_peak(off))},
                 {"", step.run.weights_sha256 == off.run.weights_sha256 ? "the same" : "DIFFERENT", "weights"}});
    all.add(line);
  }
  return all;
}

class MemoryCommand : public RecordingCommand {
  measure::StepFlags settings_;
  std::string budget_ = "256M";
  int64_t steps_ = 3;
  bool curve_ = false, quiet_ = false;
  int64_t budget_bytes_ = int64_t{256} << 20;

  void declare(cli::Flags& flags) override {
    flags.examples({"profile memory", "profile memory --model char_gpt --blocks auto --data tinyshakespeare",
                    "profile memory --model deep_cnn --batch 16 --budget 1G --curve --html memory.html"},
                   "docs/chapters/15_finding_the_bottleneck.md says what the columns mean.");
    settings_.declare(flags, {.step = false});
    flags.batch(settings_.experiment.batch, max_batch);
    const auto read_budget = [this](const std::string& bytes) {
      budget_bytes_ = parse_bytes("budget ", bytes);
      budget_ = bytes;
    };
    flags
        .text("--budget", own().unrecorded(), read_budget, budget_, "BYTES",
              "For the largest batch that fits; k, M and G as powers of 1024")
        .record("budget_bytes", [this] { return budget_bytes_; });
    flags.on_off("--curve", own(), curve_, "Also bytes against time over ten budgets");
    flags.integer("--steps", own(), steps_, 1, 1000, "Timed steps of each row; one comes before them");
    flags.quiet(quiet_);
  }

  measure::Experiment step_case(Precision precision, int64_t accumulate) const {
    measure::Experiment experiment = settings_.experiment;
    experiment.precision = precision;
    experiment.accumulate = accumulate;
    return experiment;
  }

  MemoryRow measure_one(Precision precision, const std::string& checkpoint, int64_t accumulate, int64_t steps,
                        const SampleSource& samples) const {
    return {precision, checkpoint, accumulate,
            measure_step(step_case(precision, accumulate), samples, parse_checkpoint(checkpoint), steps)};
  }

  std::vector<MemoryRow> measure_rows(const SampleSource& samples) const {
    std::vector<MemoryRow> rows;
    for (const Precision precision : precisions) {
      for (const char* checkpoint : checkpoints) {
        for (const int64_t accumulate : accumulations) {
          if (!quiet_)
            cli::notice(fmt::format("{}, checkpoint {}, accumulate {}", hs::name(precision), checkpoint, accumulate));
          MemoryRow row = measure_one(precision, checkpoint, accumulate, steps_, samples);
          row.largest_batch =
              largest_batch(step_case(precision, accumulate), row.step, samples, budget_bytes_, max_batch);
          rows.push_back(std::move(row));
        }
      }
    }
    return rows;
  }

  std::vector<MemoryRow> measure_curve(const SampleSource& samples) const {
    std::vector<MemoryRow> points;
    const auto add = [&](const std::string& checkpoint) {
      if (!quiet_) cli::notice("curve, checkpoint " + checkpoint);
      points.push_back(measure_one(Precision::f32, checkpoint, 1, steps_, samples));
    };
    add("off");
    add("budget=auto");
    const measure::CheckpointPlan off = points[0].step.plan();
    const int64_t smallest = smallest_budget(off.costs), largest = off.predicted.peak;
    for (int i = 0; i < curve_budgets; ++i) {
      add(fmt::format("budget={}", smallest + (largest - smallest) * i / (curve_budgets - 1)));
    }
    return points;
  }

  report::Rows rows_of(const std::vector<MemoryRow>& rows) const {
    report::Rows all{.table = {.left = 2}};
    for (const MemoryRow& row : rows) {
      std::vector<report::Figure> purposes;
      purposes.reserve(memory_purposes);
      for (size_t p = 0; p < memory_purposes; ++p) {
        purposes.push_back(
            {"", row.step.memory.at_peak[p], hs::name(static_cast<MemoryPurpose>(p)), "{:.1f}", report::to_mebibytes});
      }
      std::vector<report::Figure> line = figures_of(row.step, purposes);
      line.insert(line.begin(), {{"precision", hs::name(row.precision), "type"},
                                 {"checkpoint", row.checkpoint, "checkpoint"},
                                 {"accumulate", row.accumulate, "accumulate"}});
      line.push_back({"largest_batch", row.largest_batch, "largest batch in " + budget_});
      if (row.accumulate == 1) line.push_back({"timeline", timeline(row.step.timeline)});
      all.add(line);
    }
    return all;
  }

  std::string headline(const cli::TrainingData& data) const {
    return fmt::format("{}: batch {}, {}, {}, device {}, threads {}", settings_.experiment.model,
                       settings_.experiment.batch, settings_.experiment.optimizer.name, data.train->info().name,
                       hs::name(settings_.experiment.device), threads());
  }

  void run(const cli::Flags& flags) override {
    settings_.use();
    outputs_.open();
    constexpr int64_t samples = 512;  // memory does not depend on their contents
    const cli::TrainingData data =
        cli::open_training_data(settings_.data, {samples, true}, {1, true}, {settings_.context});
    const int64_t batch = settings_.experiment.batch;
    const Json cost = accumulation_cost(step_case(Precision::f32, 1), *data.train, steps_);
    const std::vector<MemoryRow> measured = measure_rows(*data.train);
    const report::Rows rows = rows_of(measured),
                       curve = curve_of(curve_ ? measure_curve(*data.train) : std::vector<MemoryRow>());
    Json record =
        report::new_record(name(), settings_.experiment.device, flags.config(),
                           {{"name", data.train->info().name}, {"synthetic", data.synthetic}, {"source", data.source}});
    record["rows"] = rows.json;
    record["accumulation_cost"] = cost;
    record["curve"] = curve.json;
    std::vector<report::Table> tables = {rows.table};
    if (curve_) tables.push_back(curve.table);
    outputs_.finish(
        record, headline(data), tables,
        {fmt::format("accumulation: forward and backward of {} batches of {} take {:.1f} ms, of one batch of {} {:.1f} "
                     "ms: {:.2f} times",
                     micro_batches, batch, report::number(cost, "accumulated_ms"), micro_batches * batch,
                     report::number(cost, "one_batch_ms"), report::number(cost, "ratio")),
         command_for_half(measured)});
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_memory_command() { return std::make_unique<MemoryCommand>(); }

}  // namespace hs::bench::commands
