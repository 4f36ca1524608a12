#include "bench/measure/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bench/cli/clock.h"
#include "bench/cli/statistics.h"
#include "bench/measure/kernel_work.h"
#include "bench/measure/observers/kernel_trace.h"

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

  for (int i = 0; i < traced_steps; ++i) {
    load();
    const KernelTrace trace(KernelTrace::timed);
    step();
    for (const TimedCall& call : trace.timed_calls()) {
      const double seconds = call.end - call.begin, flops = flops_of(call);
      const double of_flops = flops / seconds / peaks.flops, of_bytes = call.bytes / seconds / peaks.bytes;
      const bool is_tiny = seconds < tiny_seconds && std::max(of_flops, of_bytes) < tiny_share;
      (is_tiny ? profile.tiny : of_flops > of_bytes ? profile.compute : profile.memory) += seconds / traced_steps;
      profile.flops += flops / traced_steps;
      profile.bytes += call.bytes / traced_steps;
    }
  }
  const double kernels = profile.tiny + profile.compute + profile.memory;
  profile.gaps = std::max(0.0, profile.step - profile.wait - kernels);
  return profile;
}

Verdict diagnose(const StepTimes& p, Device device) {
  const double working = p.step - p.wait;
  if (p.wait > 0.1 * p.step) {
    return {Bound::data, "data-bound",
            fmt::format("{:.0f} % of the step is waiting for its batch", p.wait / p.step * 100),
            "--prefetch 2 --workers 1 makes batches meanwhile, --cache ram decodes each sample once; many small files: "
            "`halfstep-bench data convert` makes one record file of them"};
  }
  if (p.gaps + p.tiny > working / 3) {
    return {Bound::launch, "launch-bound",
            fmt::format("{:.0f} % of the work is between kernels, or in kernels that are too small for the machine",
                        (p.gaps + p.tiny) / working * 100),
            device == Device::cpu ? "a larger --batch: the same launches for more samples"
                                  : "--graph on: a whole step is one launch; or a larger --batch"};
  }
  const double share = std::max(p.memory, p.compute) / working * 100;
  if (p.memory >= p.compute) {
    return {Bound::memory, "memory-bound", fmt::format("{:.0f} % of the work is kernels that move bytes", share),
            "--precision bf16 or f16: half the bytes; a smaller --batch may fit the caches"};
  }
  return {Bound::compute, "compute-bound", fmt::format("{:.0f} % of the work is kernels that do arithmetic", share),
          "--precision bf16 or f16 if this machine multiplies 16 bits faster; `halfstep-bench bench conv` and `bench "
          "gemm` show the "
          "variants of the kernels; then fewer steps: --target with another batch or learning rate"};
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
