#include "bench/measure/techniques.h"

#include <fmt/ranges.h>

#include "engine/cpu_features.h"

namespace hs::bench::measure {
namespace {

constexpr int64_t micro_batches = 4;

// Why this machine or experiment does not support the technique; empty: it does.
std::string why_not(const std::string& technique, const Experiment& base) {
  if (technique == "fast kernels" && base.kernels.empty()) {
    return fmt::format("{} has no simpler variant of these kernels to compare with", hs::name(base.device));
  }
  if (technique == "graph" && base.device != Device::cuda) {
    return fmt::format("{} captures no graphs", hs::name(base.device));
  }
  if (technique == "accumulation" && base.batch % micro_batches != 0) {
    return fmt::format("a batch of {} cannot be cut into {}", base.batch, micro_batches);
  }
  return "";
}

constexpr double saves_bytes = 0.95, loses_accuracy = 0.005;  // a ratio; of 1

// A technique on top of all before it.
struct Step {
  const Json* row;
  SpeedUp gain;
  double bytes, accuracy;  // bytes after / before, accuracy after - before

  std::string flags() const { return report::text(*row, "train_flags"); }
  bool saves() const { return bytes < saves_bytes; }
  std::string bytes_text() const { return fmt::format("{:+.0f} % bytes", (bytes - 1) * 100); }
  std::string saving_text() const { return saves() ? "; " + bytes_text() : ""; }
  std::string accuracy_text() const {
    return accuracy < -loses_accuracy ? fmt::format("; accuracy {:+.1f} points", accuracy * 100) : "";
  }
};

Step step_between(const Json& before, const Json& after, size_t verdicts) {
  return {.row = &after,
          .gain = speed_up(report::numbers(before, "seconds_all"), report::numbers(after, "seconds_all"), verdicts),
          .bytes = report::number(after, "peak_bytes") / report::number(before, "peak_bytes"),
          .accuracy = report::number(after, "test_accuracy") - report::number(before, "test_accuracy")};
}

// The baseline, the first technique, then each with all before it.
std::vector<const Json*> chain_of(const Json& rows) {
  std::vector<const Json*> chain;
  for (const Json& row : rows) {
    if (row.contains("error")) continue;
    if (chain.size() < 2 || report::text(row, "group") == "cumulative") chain.push_back(&row);
  }
  return chain;
}

}  // namespace

// In the order in which the cumulative rows add them: first what `train` has on, so that one row is train's defaults.
const std::vector<Technique>& techniques() {
  static const std::vector<Technique> all = {
      {"cache", "each sample read and decoded once, then kept in memory", false,
       [](Experiment& e) { e.loading.cache = CacheMode::ram; }},
      {"prefetch", "batches made by a thread, ahead of the step that needs them", false,
       [](Experiment& e) { e.loading.prefetch = 2, e.loading.workers = 1; }},
      {"fast kernels", "convolution without im2col, in one kernel with pooling and ReLU", false,
       [](Experiment& e) { e.kernels.clear(), e.fuse = true; }},
      {"graph", "the step recorded once and replayed, without the launches", false,
       [](Experiment& e) { e.graph = true; }},
      {"mixed precision", "products in 16 bits, sums and weights in 32", false,
       [](Experiment& e) { e.precision = half_precision(e.device); },
       [](const Experiment& e) { return std::string(hs::name(e.precision)); },
       [](const Experiment& e) { return fmt::format("--precision {}", hs::name(e.precision)); }},
      {"accumulation", "small batches whose gradients make one step of the same size", true,
       [](Experiment& e) { e.batch /= micro_batches, e.accumulate = micro_batches; },
       [](const Experiment& e) { return fmt::format("{} x {}", e.accumulate, e.batch); },
       [](const Experiment& e) { return fmt::format("--batch {} --accumulate {}", e.batch, e.accumulate); }},
      {"checkpointing", "activations computed again in backward in place of being kept", true,
       [](Experiment& e) { e.checkpoint = parse_checkpoint("all"); }, Technique::nothing,
       [](const Experiment&) { return std::string("--checkpoint all"); }},
  };
  return all;
}

Experiment baseline(Experiment experiment) {
  experiment.loading.cache = CacheMode::none;
  experiment.loading.prefetch = 0;
  experiment.precision = Precision::f32;
  experiment.accumulate = 1;
  experiment.checkpoint = parse_checkpoint("off");
  experiment.graph = false;
  experiment.fuse = false;
  experiment.kernels.clear();
  if (experiment.device == Device::cpu) {  // the simpler variants of the slots that have one
    experiment.kernels = {"conv2d_forward=im2col", "conv2d_backward=im2col", "max_pool2d_forward=simple",
                          "max_pool2d_backward=simple"};
  }
  return experiment;
}

Plan make_plan(const Experiment& base) {
  Plan plan;
  plan.rows.push_back({"baseline", false, base, "", {"baseline", {}, ""}});
  std::vector<TechniqueRow> cumulative;
  Experiment together = base;
  for (const Technique& technique : techniques()) {
    if (const std::string reason = why_not(technique.name, base); !reason.empty()) {
      plan.absent.push_back({{"name", technique.name}, {"reason", reason}});
      continue;
    }
    Experiment alone = base;
    technique.apply(alone);
    const std::string detail = technique.detail(alone);
    const std::string name = technique.name + (detail.empty() ? "" : fmt::format(" ({})", detail));
    technique.apply(together);
    if (plan.rows.size() > 1) {
      cumulative.push_back({"cumulative", technique.for_memory, together, technique.flags(alone), {name, {}, ""}});
    }
    plan.rows.push_back({"alone", technique.for_memory, alone, technique.flags(alone), {name, {}, ""}});
  }
  std::ranges::move(cumulative, std::back_inserter(plan.rows));
  return plan;
}

Precision half_precision(Device device) {
  if (device == Device::cuda) return Precision::f16;
  return cpu_features().avx512_bf16 || cpu_features().amx_bf16 ? Precision::bf16 : Precision::f16;
}

std::vector<std::string> advice(const Json& rows, const std::string& command) {
  const std::vector<const Json*> chain = chain_of(rows);
  std::vector<std::string> on, faster, smaller, left, open;
  std::string flags, defaults, before;  // before: what of train's flags the row before had
  const size_t verdicts = verdicts_of(rows);
  const Json* default_row = chain.empty() ? nullptr : chain[0];  // what train does without flags
  for (size_t i = 1; i < chain.size(); ++i) {
    const Step step = step_between(*chain[i - 1], *chain[i], verdicts);
    if (report::flag(*chain[i], "on_by_default")) {
      on.push_back(report::text(*chain[i], "name"));
      defaults = step_between(*chain[0], *chain[i], verdicts).gain.text();
      default_row = chain[i];
    } else if (report::flag(*chain[i], "for_memory")) {
      const Step whole = step_between(*default_row, *chain[i], verdicts);
      step.saves()
          ? smaller.push_back(fmt::format("{} ({}, {}{})", (before + " " + step.flags()).substr(1), whole.bytes_text(),
                                          whole.gain.text(), whole.accuracy_text()))
          : left.push_back(fmt::format("{} ({}), which saves no memory here", step.flags(), step.bytes_text()));
    } else if (step.gain.verdict == "faster") {
      flags += " " + step.flags();
      faster.push_back(step.gain.text() + step.saving_text() + step.accuracy_text());
    } else {
      const bool is_slower = step.gain.verdict == "slower";
      const std::string what = fmt::format("{} ({}{})", step.flags(), step.gain.text(), step.saving_text());
      is_slower ? left.push_back(what + ", which is slower") : open.push_back(what + ", " + step.gain.verdict);
    }
    if (!report::flag(*chain[i], "on_by_default")) before += " " + step.flags();
  }
  std::vector<std::string> lines;
  lines.push_back(
      !faster.empty() ? fmt::format("On this machine: {}{} ({}).", command, flags, fmt::join(faster, "; "))
      : open.empty() && chain.size() > 1
          ? fmt::format("On this machine: {}. No technique that it leaves off is faster here.", command)
          : fmt::format("On this machine: {}. None of what it leaves off is known to be faster here.", command));
  if (!on.empty()) lines.push_back(fmt::format("On by default: {} (together {}).", fmt::join(on, ", "), defaults));
  add_line(lines, "Not decided", open);
  add_line(lines, "To save memory", smaller);
  add_line(lines, "Leave out", left);
  return lines;
}

void add_line(std::vector<std::string>& lines, const char* what, const std::vector<std::string>& parts) {
  if (!parts.empty()) lines.push_back(fmt::format("{}: {}.", what, fmt::join(parts, "; ")));
}

void put_answer(Json& record, std::vector<std::string> lines) {
  const Json& environment = report::part(record, "environment");
  const double load = report::number(environment, "load_average"), cores = report::number(environment, "cores");
  if (load > cores / 2) {
    lines.push_back(
        fmt::format("The machine was busy: a load of {:.1f} on {:.0f} cores before it began. Repeat it when it is not.",
                    load, cores));
  }
  record["answer"] = lines;
}

}  // namespace hs::bench::measure
