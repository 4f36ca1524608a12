#include "bench/measure/step_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "bench/cli/console.h"
#include "bench/cli/interrupt.h"
#include "bench/measure/train_part.h"

namespace hs::bench::measure {
namespace {

constexpr size_t max_points = 400;  // of a memory timeline

std::vector<ProfileSpan> steps_of(const Profile& profile) {
  std::vector<ProfileSpan> steps;
  for (const ProfileSpan& span : profile.spans) {
    if (span.row == 0 && span.name == std::string_view("step")) steps.push_back(span);
  }
  return steps;
}

std::string label(const ProfileSpan& span) {
  return *span.variant ? fmt::format("{} {}", span.name, span.variant) : span.name;
}

// Sort key: the training loop, the device, then the loader's threads.
int place(const std::string& row) {
  const std::vector<std::string> first = {"training", "compute", "copy"};
  return static_cast<int>(std::ranges::find(first, row) - first.begin());
}

std::vector<size_t> in_order(const std::vector<std::string>& rows) {
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t row) { return std::pair(place(rows[row]), rows[row]); });
  return order;
}

Json purposes_of(const std::vector<MemorySample>& samples) {
  Json purposes = Json::array();
  for (size_t p = 0; p < memory_purposes; ++p) {
    const auto bytes = mapped(samples, [p](const MemorySample& sample) { return sample.live[p]; });
    if (std::ranges::all_of(bytes, [](size_t live) { return live == 0; })) continue;
    purposes.push_back({{"name", hs::name(static_cast<MemoryPurpose>(p))}, {"live_bytes", bytes}});
  }
  return purposes;
}

// The samples between begin and end, and the last one before begin.
std::vector<MemorySample> samples_in(const std::vector<MemorySample>& memory, double begin, double end) {
  std::vector<MemorySample> inside;
  for (const MemorySample& sample : memory) {
    if (sample.time > end) break;
    if (sample.time < begin) inside.clear();
    inside.push_back(sample);
  }
  return inside;
}

}  // namespace

std::vector<MemorySample> thinned(std::vector<MemorySample> samples, size_t most) {
  const auto total = [](const MemorySample& sample) {
    return std::accumulate(sample.live.begin(), sample.live.end(), size_t{0});
  };
  if (samples.size() <= most) return samples;
  std::vector<MemorySample> kept;
  for (size_t i = 0; i < most; ++i) {
    const auto from = samples.begin() + static_cast<std::ptrdiff_t>(i * samples.size() / most);
    const auto to = samples.begin() + static_cast<std::ptrdiff_t>((i + 1) * samples.size() / most);
    kept.push_back(*std::ranges::max_element(from, to, {}, total));
  }
  return kept;
}

StepProfile profile_steps(const Experiment& experiment, const SampleSource& train, const SampleSource& test,
                          int64_t steps, const TrainHooks& hooks) {
  Experiment twice = experiment;
  twice.epochs = 2;
  twice.graph_steps = 1;  // to see each step
  constexpr SampleOrder order = SampleOrder::as_it_is;
  const PartOfSamples some(train, 0, steps * experiment.batch * experiment.accumulate, order);
  const PartOfSamples few(test, 0, experiment.batch, order);
  StepProfile result;
  std::optional<Profiler> profiler;
  RankSums* const sums = experiment.sum.sums();
  TrainHooks profiling = hooks;
  profiling.on_epoch = [&](int64_t epoch, const EpochResult& epoch_result) {
    if (hooks.on_epoch) hooks.on_epoch(epoch, epoch_result);
    if (epoch == 1) {
      if (sums) sums->take_times(true);
      profiler.emplace(experiment.device);
    } else {
      result.profile = profiler->finish();
      if (sums) result.sums = sums->take_times(false);
    }
  };
  const RunRecord run = run_experiment(twice, some, few, twice.seed, profiling);
  const std::vector<float>& scales = run.result.loss_scales;
  result.loss_scales.assign(scales.begin() + static_cast<std::ptrdiff_t>(scales.size() / 2), scales.end());
  const std::vector<ProfileSpan> profiled = steps_of(result.profile);
  const double end = profiled.empty() ? 0 : profiled.back().end;
  std::erase_if(result.profile.spans, [end](const ProfileSpan& span) { return span.begin >= end; });
  std::erase_if(result.sums, [&](const SumTimes& sum) { return sum.posted - result.profile.start >= end; });
  std::erase_if(result.profile.memory, [end](const MemorySample& sample) { return sample.time >= end; });
  return result;
}

Json to_json(const MemoryCounts& counts) {
  return {{"requests", counts.requests},
          {"sectors_per_request", static_cast<double>(counts.sectors) / static_cast<double>(counts.requests)},
          {"bytes_moved", 32 * counts.sectors},
          {"bytes_used", counts.bytes_used},
          {"bank_conflicts", counts.bank_conflicts},
          {"divergent_branches", counts.divergent}};
}

namespace {

// The events that name a process and its rows.
std::vector<Json> names_of(const TraceProcess& process, const Profile& profile) {
  const int64_t pid = process.id;
  std::vector<Json> events;
  events.push_back(
      {{"ph", "M"}, {"pid", pid}, {"tid", 0}, {"name", "process_name"}, {"args", {{"name", process.name}}}});
  int position = 0;
  for (const size_t row : in_order(profile.rows)) {
    if (std::ranges::find(profile.spans, row, &ProfileSpan::row) == profile.spans.end()) continue;
    const auto about_row = [&](const char* what, const Json& args) {
      events.push_back({{"ph", "M"}, {"pid", pid}, {"tid", row + 1}, {"name", what}, {"args", args}});
    };
    about_row("thread_name", {{"name", profile.rows[row]}});
    about_row("thread_sort_index", {{"sort_index", position++}});
  }
  return events;
}

}  // namespace

std::string trace_events(const StepProfile& steps, const TraceProcess& process) {
  const Profile& profile = steps.profile;
  const int64_t pid = process.id;
  const auto microseconds = [&](double time) { return (process.start + time) * 1e6; };
  std::vector<Json> events = names_of(process, profile);
  for (const ProfileSpan& span : profile.spans) {
    Json args = Json::object();
    if (*span.variant) args["variant"] = span.variant;
    if (span.number >= 0) args["number"] = span.number;
    if (span.counts) args["counts"] = to_json(*span.counts);
    events.push_back(
        {{"ph", "X"},
         {"pid", pid},
         {"tid", span.row + 1},
         {"name", span.name},
         {"cat", place(profile.rows[span.row]) == 1 || place(profile.rows[span.row]) == 2 ? "device" : "host"},
         {"ts", microseconds(span.begin)},
         {"dur", (span.end - span.begin) * 1e6},
         {"args", args}});
  }
  const auto counter = [&](const char* what, double time, const Json& values) {
    events.push_back(
        {{"ph", "C"}, {"pid", pid}, {"tid", 0}, {"name", what}, {"ts", microseconds(time)}, {"args", values}});
  };
  for (const MemorySample& sample : profile.memory) {
    Json values = Json::object();
    for (size_t p = 0; p < memory_purposes; ++p) values[hs::name(static_cast<MemoryPurpose>(p))] = sample.live[p];
    counter("memory", sample.time, values);
  }
  const std::vector<ProfileSpan> done = steps_of(profile);
  for (size_t i = 0; i < std::min(done.size(), steps.loss_scales.size()); ++i) {
    counter("loss scale", done[i].end, {{"scale", steps.loss_scales[i]}});
  }
  for (size_t i = 0; i < steps.sums.size(); ++i) {  // they overlap, so they are no spans of a row
    const SumTimes& sum = steps.sums[i];
    for (const bool begins : {true, false}) {
      events.push_back({{"pid", pid},
                        {"tid", 0},
                        {"cat", "sum"},
                        {"id", fmt::format("{}.{}", pid, i)},
                        {"name", sum.name},
                        {"ph", begins ? "b" : "e"},
                        {"ts", microseconds((begins ? sum.posted : sum.finished) - profile.start)}});
      if (begins) events.back()["args"] = {{"bytes", sum.bytes}};
    }
  }
  std::string text;
  for (const Json& event : events) {
    text += (text.empty() ? "" : ",\n") + event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text;
}

std::string trace_file(const std::vector<std::string>& processes, size_t dropped, const Json& facts) {
  Json other = facts;
  other["dropped_spans"] = dropped;
  return fmt::format("{{\"displayTimeUnit\": \"ms\",\n\"otherData\": {},\n\"traceEvents\": [\n{}\n]}}\n",
                     other.dump(-1, ' ', false, Json::error_handler_t::replace), fmt::join(processes, ",\n"));
}

Json typical_step(const StepProfile& steps) {
  const Profile& profile = steps.profile;
  std::vector<ProfileSpan> done = steps_of(profile);
  if (done.empty()) return nullptr;
  std::ranges::sort(done, {}, [](const ProfileSpan& span) { return span.end - span.begin; });
  const ProfileSpan step = done[done.size() / 2];
  std::map<size_t, Json> spans;
  for (const ProfileSpan& span : profile.spans) {
    const double begin = std::max(span.begin, step.begin), end = std::min(span.end, step.end);
    // For the training loop, the phases of the step; their ops appear as kernels.
    if (begin >= end || span.depth != (span.row == 0 ? 1 : 0)) continue;
    spans[span.row].push_back({{"name", label(span)}, {"start", begin - step.begin}, {"end", end - step.begin}});
  }
  Json lanes = Json::array();
  for (const size_t row : in_order(profile.rows)) {
    if (spans.contains(row)) lanes.push_back({{"name", profile.rows[row]}, {"spans", spans[row]}});
  }
  return {{"seconds", step.end - step.begin},
          {"lanes", lanes},
          {"purposes", purposes_of(thinned(samples_in(profile.memory, step.begin, step.end), max_points))}};
}

namespace {

// --trace and --trace-steps: steps after the last run, for a file and for the timelines of reports.
class TraceOutput : public TrainPart {
  using TrainPart::TrainPart;
  std::string path_;
  int64_t steps_ = 10;
  std::optional<OutputFile> file_;
  bool is_wanted_ = false;  // by rank 0
  Json step_;

  void declare(cli::Flags& flags) override {
    flags.text("--trace", rare(cli::Group::output).writes(), path_, "FILE",
               "Write what ran when, for ui.perfetto.dev or chrome://tracing, - for stdout");
    flags.integer("--trace-steps",
                  rare(cli::Group::output)
                      .writes()
                      .needs([this] { return !path_.empty(); }, "there is no --trace FILE to write them to"),
                  steps_, 1, 1000, "Steps of the trace");
  }

  // The steps that are profiled are steps of all ranks.
  void with_device(const cli::Flags&) override {
    is_wanted_ = !job_.ranks.from_first(path_).empty();
    steps_ = std::stoll(job_.ranks.from_first(std::to_string(steps_)));
    file_.emplace(job_.ranks.is_first() ? path_ : "", "--trace");
    job_.files.push_back(&*file_);
  }

  void after_runs(const Json& record) override {
    if (!is_wanted_ && (job_.ranks.is_on() || !job_.has_report)) return;
    TrainHooks hooks;
    if (job_.ranks.is_on()) {
      hooks.is_interrupted = cli::stop_requested;
    } else {
      hooks.on_step = [](const Progress&) { cli::check_signals("while profiling steps; no record was written"); };
    }
    const StepProfile profile = profile_steps(job_.experiment, *job_.data->train, *job_.data->test, steps_, hooks);
    cli::check_signals("while profiling steps; no record was written");
    if (profile.profile.dropped > 0) {
      cli::notice(fmt::format("--trace-steps {}: the trace is full, {} later spans were left out; give it fewer steps",
                              steps_, profile.profile.dropped));
    }
    step_ = typical_step(profile);
    if (is_wanted_) job_.each([&] { write(profile, record); });
  }

  // On all ranks.
  void write(const StepProfile& profile, const Json& record) {
    Json facts;
    for (const char* name : {"command", "data", "config", "environment"}) facts[name] = record[name];
    const std::string text = job_.ranks.trace(profile, facts);
    if (!file_->is_wanted()) return;
    file_->write(text);
    file_->keep();
  }

  void add_to_row(Json& row) const override { row["step"] = step_; }
};

}  // namespace

MadePart make_trace_output(TrainJob& job) { return std::make_unique<TraceOutput>(job); }

}  // namespace hs::bench::measure
