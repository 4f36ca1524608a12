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
#include <numeric>

#include "bench/commands/commands.h"
#include "bench/measure/forecast.h"
#include "bench/measure/memory_measure.h"
#include "bench/measure/row.h"
#include "bench/measure/step_flags.h"

namespace hs::bench::commands {
namespace {

constexpr Precision precisions[] = {Precision::f32, Precision::bf16};
constexpr const char* checkpoints[] = {"off", "all", "budget=auto"};
constexpr int64_t accumulations[] = {1, 4};
constexpr int curve_budgets = 10;
constexpr int64_t largest_batch_looked_at = 4096;

// One row of the table, or one point of the curve.
struct MemoryRow {
  Precision precision;
  std::string checkpoint;
  int64_t accumulate;
  measure::MeasuredStep step;
  int64_t largest_batch = 0;  // rows only
};

Json by_purpose(const BytesByPurpose& bytes) {
  Json json = Json::object();
  for (size_t p = 0; p < memory_purposes; ++p) json[hs::name(static_cast<MemoryPurpose>(p))] = bytes[p];
  return json;
}

size_t total(const BytesByPurpose& bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

Json timeline(const measure::MeasuredStep& step) {
  constexpr size_t most = 128;
  const size_t count = step.events.size(), points = std::min(count, most);
  Json json = Json::array();
  BytesByPurpose live = step.live_at_start;
  size_t i = 0;
  for (size_t point = 0; point < points; ++point) {
    BytesByPurpose then{};
    for (; i < (point + 1) * count / points; ++i) {
      const MemoryEvent& event = step.events[i];
      size_t& bytes = live[static_cast<size_t>(event.purpose)];
      bytes = event.made ? bytes + event.bytes : bytes - event.bytes;
      if (total(live) > total(then)) then = live;
    }
    json.push_back({{"live", by_purpose(then)}});
  }
  return {{"events", count}, {"live_at_start", by_purpose(step.live_at_start)}, {"points", json}};
}

size_t activation_peak(const measure::MeasuredStep& step) {
  return step.peak_by_purpose[static_cast<size_t>(MemoryPurpose::activations)];
}

// What a step has in both tables; `between` comes before its time.
std::vector<report::Figure> figures_of(const measure::MeasuredStep& step, const std::vector<report::Figure>& between) {
  std::vector<report::Figure> all = {
      {"stages", step.plan.costs.stages.size() - 1},
      {"segments", mapped(step.plan.segments, measure::segment_to_json)},
      {"predicted_peak_bytes", step.plan.predicted.peak, "predicted", "{:.1f}", report::to_mebibytes},
      {"peak_bytes", step.peak, "peak MiB", "{:.1f}", report::to_mebibytes},
      {"predicted_extra_time", step.plan.predicted.extra_ms / step.plan.costs.milliseconds()},
      {"at_peak", by_purpose(step.at_peak)},
      {"peak_by_purpose", by_purpose(step.peak_by_purpose)},
      {"weights_sha256", step.weights_sha256}};
  all.insert(all.end(), between.begin(), between.end());
  all.push_back({"step_ms", step.milliseconds, "step ms", "{:.1f}"});
  return all;
}

// What to give `train` for half the bytes: of the rows with the same steps as the first, the one that takes the least
// time of those with at most half of its bytes, or the one with the fewest.
std::string command_for_half(const std::vector<MemoryRow>& rows) {
  const auto peak = [](const MemoryRow& row) { return static_cast<double>(row.step.peak); };
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
    const measure::MeasuredStep &step = point.step, &off = points[0].step;
    const auto peak = static_cast<double>(activation_peak(step));
    std::vector<report::Figure> line =
        figures_of(step, {{"", peak, "activations MiB", "{:.1f}", report::to_mebibytes}});
    line.insert(line.begin(),
                {{"checkpoint", point.checkpoint, "checkpoint, f32"}, {"", step.plan.segments.size(), "segments"}});
    line.insert(line.end(), {{"extra_time", step.milliseconds / off.milliseconds - 1, "time", "{:+.1f} %", 100},
                             {"activations_saved", 1 - peak / static_cast<double>(activation_peak(off))},
                             {"", step.weights_sha256 == off.weights_sha256 ? "the same" : "DIFFERENT", "weights"}});
    all.add(line);
  }
  return all;
}

class MemoryCommand : public RecordingCommand {
  measure::StepFlags settings_;
  std::string budget_ = "256M";
  int64_t steps_ = 3;
  bool curve_ = false, dry_run_ = false, quiet_ = false;
  int64_t budget_bytes_ = int64_t{256} << 20;
  Device device_ = Device::cpu;

  void declare(cli::Flags& flags) override {
    flags.examples({"profile memory", "profile memory --model char_gpt --blocks auto --data tinyshakespeare",
                    "profile memory --model deep_cnn --batch 16 --budget 1G --curve --html memory.html",
                    "profile memory --dry-run"},
                   "docs/chapters/finding_the_bottleneck.md says what the columns mean.");
    settings_.declare(flags, {.step = false});
    flags.batch(settings_.experiment.batch, largest_batch_looked_at);
    const auto read_budget = [this](const std::string& bytes) {
      budget_bytes_ = parse_bytes("budget ", bytes);
      budget_ = bytes;
    };
    flags
        .text("--budget", read_budget, budget_, "BYTES",
              "For the largest batch that fits; k, M and G as powers of 1024")
        .unrecorded()
        .record("budget_bytes", [this] { return budget_bytes_; });
    flags.on_off("--curve", curve_, "Also bytes against time over ten budgets");
    flags.integer("--steps", steps_, 1, 1000, "Timed steps of each row; one comes before them");
    flags.dry_run(dry_run_);
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
            measure::measure_step(step_case(precision, accumulate), samples, parse_checkpoint(checkpoint), steps)};
  }

  std::vector<MemoryRow> measure_rows(const SampleSource& samples) const {
    std::vector<MemoryRow> rows;
    for (const Precision precision : precisions) {
      for (const char* checkpoint : checkpoints) {
        for (const int64_t accumulate : accumulations) {
          if (!quiet_)
            cli::notice(fmt::format("{}, checkpoint {}, accumulate {}", hs::name(precision), checkpoint, accumulate));
          MemoryRow row = measure_one(precision, checkpoint, accumulate, steps_, samples);
          row.largest_batch = measure::largest_batch(step_case(precision, accumulate), row.step, row.step.plan.segments,
                                                     samples, budget_bytes_, largest_batch_looked_at);
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
    const measure::CheckpointPlan off = points[0].step.plan;
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
            {"", row.step.at_peak[p], hs::name(static_cast<MemoryPurpose>(p)), "{:.1f}", report::to_mebibytes});
      }
      std::vector<report::Figure> line = figures_of(row.step, purposes);
      line.insert(line.begin(), {{"precision", hs::name(row.precision), "type"},
                                 {"checkpoint", row.checkpoint, "checkpoint"},
                                 {"accumulate", row.accumulate, "accumulate"}});
      line.push_back({"largest_batch", row.largest_batch, "largest batch in " + budget_});
      if (row.accumulate == 1) line.push_back({"timeline", timeline(row.step)});
      all.add(line);
    }
    return all;
  }

  std::string headline(const cli::TrainingData& data) const {
    return fmt::format("{}: batch {}, {}, {}, device {}, threads {}", settings_.experiment.model,
                       settings_.experiment.batch, settings_.experiment.optimizer.name, data.train->info().name,
                       hs::name(device_), threads());
  }

  // Peaks are the planner's, from one step of each type, whose time gives the minutes. The search for the largest batch
  // costs a few steps, each with about as many samples as fit the budget.
  void print_plan(const cli::TrainingData& data) const {
    constexpr double steps_of_search = 3;
    measure::DryRun plan({"type", "checkpoint", "step ms", "peak MiB"}, 2);
    int64_t rows = 0;
    for (const Precision precision : precisions) {
      for (const char* checkpoint : checkpoints) {
        const measure::MeasuredStep step = measure_one(precision, checkpoint, 1, 1, *data.train).step;
        const auto peak = static_cast<double>(step.plan.predicted.peak);
        double steps =
            steps_of_search * std::min(static_cast<double>(budget_bytes_) / peak,
                                       static_cast<double>(largest_batch_looked_at / settings_.experiment.batch));
        for (const int64_t accumulate : accumulations) steps += static_cast<double>(accumulate * (steps_ + 1));
        // The curve's time is divided over the rows off, all and auto.
        if (curve_ && precision == Precision::f32) steps += static_cast<double>(curve_budgets * (steps_ + 1)) / 3;
        plan.add({hs::name(precision), checkpoint, fmt::format("{:.1f}", step.milliseconds),
                  report::mebibytes(static_cast<size_t>(step.plan.predicted.peak))},
                 steps * step.milliseconds / 1e3);
        rows += std::ssize(accumulations);
      }
    }
    plan.print(headline(data), data.train->info().name, fmt::format("{} rows, {} timed steps of each", rows, steps_));
  }

  void run(const cli::Flags& flags) override {
    settings_.use(flags);
    device_ = settings_.experiment.device;
    outputs_.open();
    constexpr int64_t samples = 512;  // memory does not depend on their contents
    const cli::TrainingData data =
        cli::open_training_data(settings_.data, {samples, true}, {1, true}, settings_.context);
    if (dry_run_) return print_plan(data);

    const measure::AccumulationCost cost =
        measure::measure_accumulation(step_case(Precision::f32, 1), *data.train, 4, steps_);
    const std::vector<MemoryRow> measured = measure_rows(*data.train);
    const report::Rows rows = rows_of(measured),
                       curve = curve_of(curve_ ? measure_curve(*data.train) : std::vector<MemoryRow>());
    Json record =
        report::new_record(name(), device_, flags.config(),
                           {{"name", data.train->info().name}, {"synthetic", data.synthetic}, {"source", data.source}});
    record["rows"] = rows.json;
    record["accumulation_cost"] = {{"micro_batches", cost.micro_batches},
                                   {"batch", cost.batch},
                                   {"accumulated_ms", cost.accumulated_ms},
                                   {"one_batch_ms", cost.one_batch_ms},
                                   {"ratio", cost.accumulated_ms / cost.one_batch_ms}};
    record["curve"] = curve.json;
    std::vector<report::Table> tables = {rows.table};
    if (curve_) tables.push_back(curve.table);
    outputs_.finish(
        record, headline(data), tables,
        {fmt::format("accumulation: forward and backward of {} batches of {} take {:.1f} ms, of one batch of {} {:.1f} "
                     "ms: {:.2f} times",
                     cost.micro_batches, cost.batch, cost.accumulated_ms, cost.micro_batches * cost.batch,
                     cost.one_batch_ms, cost.accumulated_ms / cost.one_batch_ms),
         command_for_half(measured)});
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_memory_command() { return std::make_unique<MemoryCommand>(); }

}  // namespace hs::bench::commands
