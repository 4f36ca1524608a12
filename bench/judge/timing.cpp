#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>

#include "bench/cli/forced_kernels.h"
#include "bench/cli/statistics.h"
#include "bench/judge/parts.h"
#include "bench/measure/kernel_timing.h"
#include "engine/check.h"
#include "engine/storage.h"

namespace hs::bench::judge {
namespace {

using measure::SlotSpy;

// The variant that makes the call without the plug-in, or, if it is the judged one, the next best.
std::string variant_beside(const Judged& judged, const SlotSpy::Seen& seen) {
  std::string name = seen.again().name;
  if (name != judged.registered.variant) return name;
  cli::with_each_variant(judged.slot, Device::cpu, [&](const VariantBase& other) {
    if (name == judged.registered.variant && name != other.name) name = seen.again().name;
  });
  return name;
}

// Times the call beside another variant's. Throws Refusal; Error of kind forced_variant: it does not take the call.
Json time_call(Judged& judged, const SlotSpy::Seen& seen, DType type, const JudgeOptions& options) {
  const std::string against = options.against.empty() ? variant_beside(judged, seen) : options.against;
  const std::string what = fmt::format("{} {}", seen.sizes, name(type)), judged_one = judged.registered.variant;
  measure::CaseTiming timing;
  const measure::TimingOptions how{
      .rounds = options.quick ? 7 : 15, .seconds = options.quick ? 0.7 : 2, .only = {judged_one, against}};
  judged.run(
      "timed", what, [&] { timing = measure::time_call(seen, how); }, own_patience);
  const auto times_of = [&](const std::string& variant) {
    const auto found = std::ranges::find(timing.variants, variant, &measure::VariantTiming::variant);
    const bool is_there = found != timing.variants.end();
    if (is_there && !found->wrong.empty()) {
      throw Refusal("timed", fmt::format("{}: beside {}: {}", what, against, found->wrong));
    }
    if (!is_there || found->warm.empty()) throw Error(ExitCode::usage, variant, ErrorKind::forced_variant);
    return found->warm;
  };
  const std::vector<double> seconds = times_of(judged_one), seconds_against = times_of(against);
  const Interval interval = ratio_interval(seconds_against, seconds);
  return {{"call", what},
          {"against", against},
          {"seconds", median(seconds)},
          {"seconds_against", median(seconds_against)},
          {"rounds", seconds.size()},
          {"ratio", median(seconds_against) / median(seconds)},
          {"ratio_low", finite_or_null(interval.low)},
          {"ratio_high", finite_or_null(interval.high)}};
}

// Times the case's first call of the slot. What it writes was poisoned.
Json time_case(Judged& judged, const examples::TimedCase& timed, DType type, const JudgeOptions& options) {
  Json timing;
  set_poison(true);
  measure::run_case(timed, type, type, Device::cpu, [&](const SlotSpy::Seen& seen) {
    set_poison(false);  // from here on it would cost time
    if (&seen.slot == &judged.slot && timing.is_null()) timing = time_call(judged, seen, type, options);
    seen.again();
  });
  if (timing.is_null()) throw Error(ExitCode::usage, "the op calls another slot", ErrorKind::forced_variant);
  return timing;
}

}  // namespace

std::vector<examples::TimedCase> timed_cases(const KernelSlot& slot, int64_t batch) {
  auto cases = examples::timed_cases(batch);
  std::erase_if(cases, [&](const auto& one) { return std::ranges::count(one.slots, &slot) == 0; });
  return cases;
}

void check_timed(Judged& judged, const JudgeOptions& options, const std::vector<DType>& types) {
  std::vector<std::pair<examples::TimedCase, DType>> all;
  for (const examples::TimedCase& timed : timed_cases(judged.slot, options.batch)) {
    for (const DType type : types) {
      if (type != DType::f64) all.emplace_back(timed, type);  // that is for checks alone
    }
  }
  ::mallopt(M_MMAP_MAX, 0);  // since the guard nothing is cached, and new pages in each call would take its time
  const std::string no_room = fmt::format("calls with batch {} take too much memory", options.batch);
  std::string untimed = fmt::format("no row of {} says at which size", judged.slot.name());
  Json& timings = judged.verdict["timed"];
  for (const auto& [timed, type] : spread(all, options.quick ? 2 : 9)) {
    try {
      timings.push_back(time_case(judged, timed, type, options));
    } catch (const std::bad_alloc&) {
      untimed = no_room;
    } catch (const Error& error) {
      const bool is_memory = error.code() == ExitCode::out_of_memory;
      if (!is_memory && error.kind() != ErrorKind::forced_variant) throw;
      untimed = is_memory ? no_room : "it does not take these calls, or none beside it does";
    }
  }
  judged.passed("timed", std::ssize(timings));
  if (timings.empty()) judged.verdict["untimed"] = untimed;
}

}  // namespace hs::bench::judge
