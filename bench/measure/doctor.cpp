#include "bench/measure/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cli/clock.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/statistics.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/techniques.h"

namespace hs::bench::measure {
namespace {

constexpr double tiny_seconds = 20e-6, tiny_share = 0.05;
constexpr int traced_steps = 5;

}  // namespace

StepTimes measure_step_times(const std::function<void()>& load, const std::function<void()>& step, int steps,
                             Device device, const Peaks& peaks) {
  load();
  step();  // warm-up
  StepTimes profile;
  std::vector<double> waits, works;
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point start = Clock::now();
    load();
    waits.push_back(seconds_since(start));
    step();
    runtime(device).synchronize();
    works.push_back(seconds_since(start) - waits.back());
  }
  // The mean for waits, which come in bursts; the median for work, because another program may have interrupted it.
  profile.wait = mean(waits);
  profile.step = profile.wait + median(works);

  // Shares of each traced step, for it is slower than the timed ones; of their medians the parts are made.
  std::vector<double> tiny, memory, compute, gaps;
  for (int i = 0; i < traced_steps; ++i) {
    load();
    StepTimes one;
    const KernelTrace trace(KernelTrace::timed);
    const Clock::time_point start = Clock::now();
    step();
    runtime(device).synchronize();
    const double whole = seconds_since(start);
    for (const TimedCall& call : trace.timed_calls()) {
      const double seconds = call.end - call.begin, flops = flops_of(call);
      const double of_flops = flops / seconds / peaks.flops, of_bytes = call.bytes / seconds / peaks.bytes;
      const bool is_tiny = seconds < tiny_seconds && std::max(of_flops, of_bytes) < tiny_share;
      const bool computes = peaks.limits_by_arithmetic(flops, call.bytes);
      (is_tiny ? one.tiny : computes ? one.compute : one.memory) += seconds / whole;
      profile.flops += flops / traced_steps;
      profile.bytes += call.bytes / traced_steps;
    }
    tiny.push_back(one.tiny);
    memory.push_back(one.memory);
    compute.push_back(one.compute);
    gaps.push_back(std::max(0.0, 1 - one.tiny - one.memory - one.compute));
  }
  const double all = median(tiny) + median(memory) + median(compute) + median(gaps);
  const double scale = (profile.step - profile.wait) / all;  // medians of shares do not add up to 1
  profile.tiny = median(tiny) * scale;
  profile.memory = median(memory) * scale;
  profile.compute = median(compute) * scale;
  profile.gaps = median(gaps) * scale;
  return profile;
}

Verdict diagnose(const StepTimes& p, Device device) {
  const double working = p.step - p.wait;
  if (p.wait > 0.1 * p.step) {
    return {
        Bound::data, "data-bound", fmt::format("{:.0f} % of the step is waiting for its batch", p.wait / p.step * 100),
        "many small files: `halfstep-bench data convert` makes one record file of them; `bench loader` has the rest"};
  }
  if (p.gaps + p.tiny > working / 3) {
    return {Bound::launch, "launch-bound",
            fmt::format("{:.0f} % of the work is between kernels, or in kernels that are too small for the machine",
                        (p.gaps + p.tiny) / working * 100),
            device == Device::cpu ? "fewer, larger layers" : "--graph on: a whole step is one launch"};
  }
  const double share = std::max(p.memory, p.compute) / working * 100;
  if (p.memory >= p.compute) {
    return {Bound::memory, "memory-bound", fmt::format("{:.0f} % of the work is kernels that move bytes", share),
            "`halfstep-bench profile kernels` names the kernels, and the bytes of each"};
  }
  return {Bound::compute, "compute-bound", fmt::format("{:.0f} % of the work is kernels that do arithmetic", share),
          "`halfstep-bench bench conv` and `bench gemm` show the variants of the kernels; then fewer steps: --target "
          "with another batch or learning rate"};
}

std::vector<Switch> switches_for(Bound bound, const Experiment& experiment) {
  std::vector<Switch> switches;
  const auto add = [&](const std::string& flags) -> Experiment& {
    return switches.emplace_back(Switch{flags, experiment}).with;
  };
  if (bound == Bound::data) {
    if (experiment.loading.cache == CacheMode::none) add("--cache ram").loading.cache = CacheMode::ram;
    if (experiment.loading.prefetch == 0) {
      LoaderOptions& loading = add("--prefetch 2 --workers 1").loading;
      loading.prefetch = 2;
      loading.workers = 1;
    }
  }
  if (bound == Bound::launch) {
    const int64_t batch = 4 * experiment.batch;
    add(fmt::format("--batch {}", batch)).batch = batch;
  }
  if (bound == Bound::memory && !experiment.fuse) add("--fuse on").fuse = true;
  if (bound == Bound::memory || bound == Bound::compute) {
    const Precision other = experiment.precision == Precision::f32 ? half_precision(experiment.device) : Precision::f32;
    add(fmt::format("--precision {}", hs::name(other))).precision = other;
  }
  return switches;
}

void time_switches(std::vector<Switch>& switches, const Experiment& experiment, const SampleSource& samples,
                   double step) {
  constexpr int64_t turns = 5, least_steps = 3;
  const auto steps = std::max(least_steps, static_cast<int64_t>(0.2 / step));
  const PartOfSamples one(samples, 0, 1, SampleOrder::as_it_is);
  TrainHooks hooks;
  hooks.on_step = [](const Progress&) { cli::check_signals("while timing switches; no results were written"); };
  std::vector<std::vector<double>> times(1 + switches.size());  // of a sample
  const auto run = [&](size_t row, int64_t) {
    Experiment what = row == 0 ? experiment : switches[row - 1].with;
    what.epochs = 2;  // the first fills the cache
    const int64_t step_samples = std::max(what.batch * what.accumulate, experiment.batch * experiment.accumulate);
    const PartOfSamples some(samples, 0, steps * step_samples, SampleOrder::as_it_is);
    const RunRecord record = run_experiment(what, some, one, what.seed, hooks);
    times[row].push_back(record.result.epochs.back().seconds / static_cast<double>(some.info().count));
    return true;
  };
  in_turns(times.size(), turns, run, [](int64_t) {});
  for (size_t i = 0; i < switches.size(); ++i) {
    switches[i].gain = speed_up(times[0], times[i + 1], switches.size());
  }
}

Verdict diagnose_ranks(const RankTimes& times) {
  const double share = times.training > 0 ? times.waiting / times.training : 0;
  const double overlap = times.active > 0 ? std::max(0.0, 1 - times.exposed / times.active) : 0;
  const std::string reason =
      fmt::format("{:.1f} % of training is waiting for sums over ranks; {:.0f} % of communication is hidden behind it",
                  share * 100, overlap * 100);
  if (share > 0.1) {
    return {Bound::communication, "communication-bound", reason,
            "a larger --batch or --accumulate: the same sums for more samples; another --bucket-kib, to hide more of "
            "them; --wire bf16: half the bytes; `halfstep-bench scaling ranks` says what more ranks would need"};
  }
  return {Bound::compute, "not communication-bound", reason,
          "`halfstep-bench profile` without mpirun profiles the steps of one process; then more ranks"};
}

}  // namespace hs::bench::measure
