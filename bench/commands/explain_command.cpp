// halfstep-bench profile kernels: one training step, kernel by kernel, with measured numbers. Its record has "peaks",
// "phases" (with the bytes of each, and its time in kernels that memory or arithmetic limits) and "calls": phase, op,
// kernel, variant, type, shapes, begin_ms (since the step began), milliseconds, flops, bytes, live_bytes; on an
// emulated device that counts, "counts" (measure::to_json).
#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "bench/cli/forced_kernels.h"
#include "bench/commands/commands.h"
#include "bench/measure/guess.h"
#include "bench/measure/kernel_timing.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/one_step.h"
#include "bench/measure/step_flags.h"
#include "bench/measure/step_profile.h"
#include "engine/autograd.h"
#include "engine/storage.h"

namespace hs::bench::commands {
namespace {

// The graph in GraphViz's format: ops as nodes, labelled with their outputs; parameters as boxes.
std::string to_dot(const Tensor& loss) {
  std::string text = "digraph step {\n  rankdir=BT;\n  node [fontname=\"sans-serif\"];\n";
  std::set<const GradInfo*> seen;
  std::vector<const GradInfo*> left = {loss.grad_info().get()};
  std::map<const GradInfo*, size_t> numbers;
  const auto number = [&](const GradInfo* info) { return numbers.emplace(info, numbers.size()).first->second; };
  while (!left.empty()) {
    const GradInfo* info = left.back();
    left.pop_back();
    if (!seen.insert(info).second) continue;
    const std::string made = fmt::format("{} {}", name(info->dtype), info->shape.to_string());
    if (!info->node) {
      text += fmt::format("  n{} [shape=box, label=\"parameter\\n{}\"];\n", number(info), made);
      continue;
    }
    text += fmt::format("  n{} [label=\"{}\\n{}\"];\n", number(info), info->node->op, made);
    for (const auto& input : info->node->inputs) {
      if (!input) continue;
      text += fmt::format("  n{} -> n{};\n", number(input.get()), number(info));
      left.push_back(input.get());
    }
  }
  return text + "}\n";
}

std::string shapes_of(const measure::TimedCall& call) {
  // The first input and the last output that is defined.
  const Shape& first = call.shapes.front();
  const Shape* last = &first;
  for (const Shape& shape : call.shapes) {
    if (shape.size() > 0) last = &shape;
  }
  return fmt::format("{} -> {}", first.to_string(), last->to_string());
}

// One traced step.
struct TracedStep {
  struct Phase {
    const char* name;
    double seconds;
    size_t end;  // index after its last call
  };
  std::vector<Phase> phases;
  std::vector<measure::TimedCall> calls;
  size_t live_before = 0, peak = 0;
};

TracedStep trace_step(measure::OneStep& step, const std::vector<Batch>& batches, Device device) {
  TracedStep traced;
  reset_peak(device);
  traced.live_before = memory_stats(device).live;
  const measure::KernelTrace trace(measure::KernelTrace::timed);
  double begin = 0;
  step.run(batches, [&](const char* phase) {
    runtime(device).synchronize();
    traced.phases.push_back({phase, trace.now() - begin, trace.timed_calls().size()});
    begin = trace.now();
  });
  traced.calls = trace.timed_calls();
  traced.peak = memory_stats(device).peak;
  return traced;
}

// A kernel call of a phase.
std::vector<report::Figure> figures_of(const measure::TimedCall& one, const char* phase, int64_t kept,
                                       double peak_flops) {
  const double seconds = one.end - one.begin, flops = measure::flops_of(one);
  const double rate = flops > 0 ? flops / seconds : NAN;  // "-" of what only moves bytes
  const bool again = phase == std::string_view("backward") && one.purpose == MemoryPurpose::activations;
  return {{"phase", phase},
          {"op", one.call.op},
          {"", again ? fmt::format("{}, again", one.call.op) : one.call.op, "op"},
          {"kernel", one.call.slot, "kernel"},
          {"type", hs::name(one.call.dtype), "type"},
          {"variant", one.call.variant, "variant"},
          {"shapes", mapped(one.shapes, &Shape::to_string)},
          {"", shapes_of(one), "tensors"},
          {"begin_ms", one.begin * 1e3},
          {"milliseconds", seconds * 1e3, "us", "{:.1f}", 1e3},
          {"flops", flops},
          {"", rate, "GFLOP/s", "{:.1f}", 1e-9},
          {"", rate / peak_flops, "of peak", "{:.0f} %", 100},
          {"bytes", one.bytes},
          {"", one.bytes / seconds, "GB/s", "{:.1f}", 1e-9},
          {"kept_bytes", kept, "change MiB", "{:+.2f}", report::to_mebibytes},
          {"recomputed", again},
          {"live_bytes", one.live, "live MiB", "{:.2f}", report::to_mebibytes}};
}

// What the kernels of a phase, or of the whole step, do, and by which peak that is limited.
struct Totals {
  double seconds = 0, in_memory_bound = 0, in_compute_bound = 0, flops = 0, bytes = 0;

  void add(const measure::TimedCall& one, const measure::Peaks& peaks) {
    const double its_flops = measure::flops_of(one);
    (peaks.limits_by_arithmetic(its_flops, one.bytes) ? in_compute_bound : in_memory_bound) += one.end - one.begin;
    flops += its_flops;
    bytes += one.bytes;
  }
  std::vector<report::Figure> figures(const char* phase) const {
    const double in_kernels = in_memory_bound + in_compute_bound;
    return {{"phase", phase, "phase"},
            {"milliseconds", seconds * 1e3, "ms", "{:.3f}"},
            {"milliseconds_in_kernels", in_kernels * 1e3, "in kernels", "{:.3f}"},
            {"bytes", bytes, "moved MiB", "{:.2f}", report::to_mebibytes},
            {"", bytes / in_kernels, "GB/s", "{:.1f}", 1e-9},
            {"", flops / in_kernels, "GFLOP/s", "{:.1f}", 1e-9},
            {"milliseconds_memory_bound", in_memory_bound * 1e3},
            {"milliseconds_compute_bound", in_compute_bound * 1e3},
            {"", in_memory_bound / seconds, "memory-bound", "{:.1f} %", 100},
            {"", in_compute_bound / seconds, "compute-bound", "{:.1f} %", 100},
            {"", 1 - in_kernels / seconds, "between kernels", "{:.1f} %", 100}};
  }
};

// Adds the members "phases" and "calls", and returns a table of all phases and one of each.
std::vector<report::Table> add_phases(const TracedStep& step, const measure::Peaks& peaks, Json& record) {
  record["calls"] = Json::array();
  std::vector<report::Table> tables(1);
  report::Rows phases;
  Totals all;
  size_t at = 0;
  auto live = static_cast<int64_t>(step.live_before);
  for (const TracedStep::Phase& phase : step.phases) {
    report::Rows rows{.table = {.left = 5}};
    rows.table.title = phase.name;
    Totals totals{.seconds = phase.seconds};
    all.seconds += phase.seconds;
    for (; at < phase.end; ++at) {
      const measure::TimedCall& one = step.calls[at];
      std::vector<report::Figure> figures =
          figures_of(one, phase.name, static_cast<int64_t>(one.live) - live, peaks.flops);
      if (one.counts) {
        const Json counts = measure::to_json(*one.counts);
        figures.insert(figures.end(), {{"counts", counts},
                                       {"", counts["sectors_per_request"], "sectors each", "{:.2f}"},
                                       {"", counts["bytes_moved"], "moved KiB", "{:.1f}", 1.0 / 1024},
                                       {"", counts["bytes_used"], "used KiB", "{:.1f}", 1.0 / 1024},
                                       {"", counts["bank_conflicts"], "conflicts"},
                                       {"", counts["divergent_branches"], "divergent"}});
      }
      rows.add(figures);
      live = static_cast<int64_t>(one.live);
      totals.add(one, peaks);
      all.add(one, peaks);
    }
    tables.push_back(rows.table);
    record["calls"].insert(record["calls"].end(), rows.json.begin(), rows.json.end());
    phases.add(totals.figures(phase.name));
  }
  record["phases"] = phases.json;
  phases.add(all.figures("step"));
  tables[0] = phases.table;
  return tables;
}

class ExplainCommand : public RecordingCommand {
  measure::StepFlags settings_;
  std::string dot_;
  bool guess_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples({"profile kernels --model mnist_cnn_large --precision bf16",
                    "profile kernels --checkpoint all --kernel conv2d_forward=im2col",
                    "profile kernels --dot step.dot     # then: dot -Tsvg step.dot -o step.svg"},
                   "docs/chapters/15_finding_the_bottleneck.md says what the columns mean.");
    settings_.declare(flags);
    flags.text("--dot", own().writes(), dot_, "FILE", "Write the autograd graph for GraphViz");
    flags.on_off("--guess", own().unrecorded(), guess_,
                 "Ask first, call by call, what is kept and which tensor goes; answers from stdin");
  }

  // Of forward and backward.
  static void ask_what_is_kept(measure::OneStep& step, const std::vector<Batch>& batches) {
    const measure::MemoryLog log;
    size_t count = 0;
    step.run(batches, [&](const char* phase) {
      if (phase == std::string_view("backward")) count = log.calls().size();
    });
    cli::write_stdout(measure::guess(log, count, std::cin) + "\n\n");
  }

  void run(const cli::Flags& flags) override {
    settings_.use();
    const measure::Experiment& experiment = settings_.experiment;
    const Device device = experiment.device;
    static_cast<void>(cli::ForcedKernels(experiment.kernels));  // reports a mistake in it before data are read
    OutputFile dot(dot_, "--dot");
    outputs_.open({&dot});
    if (guess_ && outputs_.use_stdout()) fail(ExitCode::usage, "--guess: asks on stdout; give a FILE in place of -");
    const cli::TrainingData data = cli::open_training_data(
        settings_.data, {experiment.batch * experiment.accumulate, true}, {1, true}, {settings_.context});
    const SampleInfo& info = data.train->info();
    const measure::Peaks peaks = measure::measure_peaks(device);  // of the machine, not of a forced variant
    const cli::ForcedKernels forced(experiment.kernels);
    measure::OneStep step(experiment, info);
    Loader loader(*data.train, {.batch = experiment.batch, .shuffle = true, .device = device});
    const std::vector<Batch> batches = measure::next_batches(loader, experiment.accumulate);
    const measure::KernelUse warming;
    for (int i = 0; i < 3; ++i) step.run(batches);
    forced.check_used(warming.since(), fmt::format("a step of {}", experiment.model));
    settings_.tuning.check_used();
    if (guess_) ask_what_is_kept(step, batches);
    const TracedStep traced = trace_step(step, batches, device);
    dot.write(to_dot(step.forward(batches[0])));
    dot.keep();

    Json record = report::new_record(name(), device, flags.config(), report::describe_data(data));
    record["peaks"] = {{"flops_per_second", peaks.flops}, {"bytes_per_second", peaks.bytes}};
    const std::vector<report::Table> tables = add_phases(traced, peaks, record);
    record["loss"] = step.loss();
    record["loss_scale"] = step.loss_scale();
    record["peak_bytes"] = traced.peak;
    outputs_.finish(
        record,
        fmt::format("{} on {}, batch {}, {}, device {}, {} parameters", experiment.model, info.name,
                    batches[0].labels.size(), hs::name(experiment.precision), hs::name(device), step.parameters()),
        tables,
        {fmt::format("peaks: {:.1f} GFLOP/s ({}), {:.1f} GB/s", peaks.flops * 1e-9, peaks.flops_of, peaks.bytes * 1e-9),
         fmt::format("loss {:.4f}, loss scale {:g}, peak of memory {} MiB", step.loss(), step.loss_scale(),
                     report::mebibytes(traced.peak))});
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_explain_command() { return std::make_unique<ExplainCommand>(); }

}  // namespace hs::bench::commands
