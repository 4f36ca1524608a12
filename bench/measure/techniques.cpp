#include "bench/measure/techniques.h"

#include "engine/check.h"
#include "engine/cpu_features.h"

namespace hs::bench::measure {
namespace {

// The simpler variants of the slots that have one, by device: the baseline for the fast kernels.
const std::vector<std::string>& simple_kernels(Device device) {
  static const std::vector<std::string> cpu = {"conv2d_forward=im2col", "conv2d_backward=im2col",
                                               "max_pool2d_forward=simple", "max_pool2d_backward=simple"};
  static const std::vector<std::string> none;
  return device == Device::cpu ? cpu : none;
}

constexpr int64_t micro_batches = 4;

std::string cache(Experiment& experiment) {
  experiment.loading.cache = CacheMode::ram;
  return "";
}

std::string prefetch(Experiment& experiment) {
  experiment.loading.prefetch = 2;
  experiment.loading.workers = 1;
  return "";
}

std::string mixed_precision(Experiment& experiment) {
  experiment.precision = half_precision(experiment.device);
  return "";
}

std::string accumulation(Experiment& experiment) {
  if (experiment.batch % micro_batches != 0) {
    return fmt::format("a batch of {} cannot be cut into {}", experiment.batch, micro_batches);
  }
  experiment.batch /= micro_batches;
  experiment.accumulate = micro_batches;
  return "";
}

std::string checkpointing(Experiment& experiment) {
  experiment.checkpoint = parse_checkpoint("all");
  return "";
}

std::string fast_kernels(Experiment& experiment) {
  if (experiment.kernels.empty()) {
    return fmt::format("{} has no simpler variant of these kernels to compare with", hs::name(experiment.device));
  }
  experiment.kernels.clear();
  experiment.fuse = true;
  return "";
}

std::string graph(Experiment& experiment) {
  if (experiment.device != Device::cuda) return fmt::format("{} captures no graphs", hs::name(experiment.device));
  experiment.graph = true;
  return "";
}

std::string nothing(const Experiment&) { return ""; }

}  // namespace

// In the order in which the cumulative rows add them: first what `train` has on, so that one row is train's defaults.
const std::vector<Technique>& techniques() {
  static const std::vector<Technique> all = {
      {"cache", "each sample read and decoded once, then kept in memory", false, cache, nothing, nothing},
      {"prefetch", "batches made by a thread, ahead of the step that needs them", false, prefetch, nothing, nothing},
      {"fast kernels", "convolution without im2col, in one kernel with pooling and ReLU", false, fast_kernels, nothing,
       nothing},
      {"graph", "the step recorded once and replayed, without the launches", false, graph, nothing, nothing},
      {"mixed precision", "products in 16 bits, sums and weights in 32", false, mixed_precision,
       [](const Experiment& e) { return std::string(hs::name(e.precision)); },
       [](const Experiment& e) { return fmt::format("--precision {}", hs::name(e.precision)); }},
      {"accumulation", "small batches whose gradients make one step of the same size", true, accumulation,
       [](const Experiment& e) { return fmt::format("{} x {}", e.accumulate, e.batch); },
       [](const Experiment& e) { return fmt::format("--batch {} --accumulate {}", e.batch, e.accumulate); }},
      {"checkpointing", "activations computed again in backward in place of being kept", true, checkpointing, nothing,
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
  experiment.kernels = simple_kernels(experiment.device);
  return experiment;
}

Plan make_plan(const Experiment& base) {
  Plan plan;
  plan.rows.push_back({"baseline", "baseline", false, base});
  std::vector<TechniqueRow> cumulative;
  Experiment together = base;
  for (const Technique& technique : techniques()) {
    Experiment alone = base;
    const std::string why_not = technique.apply(alone);
    if (!why_not.empty()) {
      plan.absent.push_back({{"name", technique.name}, {"reason", why_not}});
      continue;
    }
    const std::string detail = technique.detail(alone);
    const std::string name = technique.name + (detail.empty() ? "" : fmt::format(" ({})", detail));
    plan.rows.push_back({name, "alone", technique.for_memory, alone, technique.flags(alone)});
    technique.apply(together);
    cumulative.push_back({name, "cumulative", technique.for_memory, together, technique.flags(alone)});
  }
  if (cumulative.size() > 1) plan.rows.insert(plan.rows.end(), cumulative.begin() + 1, cumulative.end());
  return plan;
}

Precision half_precision(Device device) {
  if (device == Device::cuda) return Precision::f16;
  return cpu_features().avx512_bf16 || cpu_features().amx_bf16 ? Precision::bf16 : Precision::f16;
}

}  // namespace hs::bench::measure
