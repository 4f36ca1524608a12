#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/cli/clock.h"
#include "bench/cli/forced_kernels.h"
#include "bench/cli/statistics.h"
#include "bench/judge/parts.h"
#include "bench/measure/kernel_timing.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "engine/storage.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/guard_pages.h"

namespace hs::bench::judge {
namespace {

using measure::SlotSpy;
using Numbers = std::vector<double>;

// Calls look() with the case's first call of the slot. What it writes is poisoned.
void look_at(const examples::TimedCase& timed, const KernelSlot& slot, DType type, uint64_t seed,
             const SlotSpy::Look& look) {
  bool seen_once = false;
  set_poison(true);
  measure::run_case(timed, type, type, Device::cpu, seed, [&](const SlotSpy::Seen& seen) {
    const bool is_it = &seen.slot == &slot && !seen_once;
    seen_once = seen_once || is_it;
    is_it ? look(seen) : static_cast<void>(seen.again());
  });
}

// What a variant has made of a call: the bytes and the numbers of each tensor that it has written.
struct Made {
  std::vector<Snapshot::Bytes> written;
  std::vector<Numbers> numbers = {};
  std::string layout = {};
};

// Makes the call, and adds its seconds.
Made made_by(const SlotSpy::Seen& seen, const Snapshot& before, double* seconds = nullptr) {
  const auto begin = Clock::now();
  const VariantBase& ran = seen.again();
  if (seconds) *seconds += seconds_since(begin);
  Made made{.written = before.written(), .layout = ran.layout ? ran.layout : ""};
  for (size_t i = 0; i < made.written.size(); ++i) {
    const auto& bytes = made.written[i];
    const bool is_measured = measure::is_measured(*seen.tensors[i]) && !bytes.empty();
    made.numbers.push_back(is_measured ? measure::numbers_of(*seen.tensors[i]) : Numbers(bytes.begin(), bytes.end()));
  }
  return made;
}

double norm_of_difference(const Numbers& a, const Numbers& b) {
  double difference = 0, square = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), square += b[i] * b[i];
  return difference == 0 ? 0 : std::sqrt(difference / square);
}

// "", or how far `got` is off. It must be finite where all of `own` are, which are the project's, and not where none
// is; and where all are, as near to them in the norm as eight times what they are apart or what is usual.
std::string difference(const Numbers& got, const std::vector<Numbers>& own, DType type) {
  const auto is_finite = [](double number) { return std::isfinite(number); };
  const bool all_finite =
      std::ranges::all_of(own, [&](const auto& one) { return std::ranges::all_of(one, is_finite); });
  std::vector<Numbers> kept(own.size() + 1);
  for (size_t j = 0; j < got.size(); ++j) {
    const auto count = std::ranges::count_if(own, [&](const Numbers& one) { return is_finite(one[j]); });
    if (is_finite(got[j]) ? count == 0 : all_finite) {
      return fmt::format("has {} in element {}, expected {}", got[j], j, own[0][j]);
    }
    if (count < std::ssize(own) || !is_finite(got[j])) continue;
    for (size_t k = 0; k < own.size(); ++k) kept[k].push_back(own[k][j]);
    kept.back().push_back(got[j]);
  }
  double most = measure::largest_error(type);
  for (size_t k = 1; k < own.size(); ++k) most = std::max(most, norm_of_difference(kept[k], kept[0]));
  const double off = norm_of_difference(kept.back(), kept[0]);
  return off <= 8 * most ? "" : fmt::format("is off by {:.2g} of its norm, at most {:.2g} is accepted", off, 8 * most);
}

// Throws Refusal if the judged variant made something else than the project's.
void compare(const std::string& check, const SlotSpy::Seen& seen, DType type, const Made& made,
             const std::vector<Made>& own) {
  for (size_t i = 0; i < made.numbers.size(); ++i) {
    const Numbers& got = made.numbers[i];
    auto its_own = mapped(own, [i](const Made& one) { return one.numbers.at(i); });
    std::erase_if(its_own, [&](const Numbers& one) { return one.size() != got.size(); });
    std::string wrong;
    if (its_own.empty()) {
      if (own.empty()) return;  // nobody else takes it
      wrong = got.empty() ? "is not written" : "is written, which others only read";
    } else if (measure::is_measured(*seen.tensors[i])) {
      wrong = difference(got, its_own, type);
    } else if (made.layout == own[0].layout) {
      // Bytes and positions: rounding decides where two sums are nearly equal, as few are.
      double others = 0;
      for (size_t j = 0; j < got.size(); ++j) others += got[j] != its_own[0][j];
      const double most = (size_of(type) == 2 ? 0.3 : 0.1) * static_cast<double>(got.size());
      if (others > most) wrong = fmt::format("has {} of {} bytes that others do not give", others, got.size());
    }
    if (wrong.empty()) continue;
    throw Refusal(check, fmt::format("{} {}: tensor {}, {}, {}", name(type), seen.sizes, i, *seen.tensors[i], wrong));
  }
}

// Puts the number at a drawn place of a call's input, past the count of modifications.
void put(const Tensor& tensor, float value, RandomSequence& draw) {
  if (!measure::is_measured(tensor) || tensor.size() == 0) return;
  const Tensor one = cast(Tensor::from(std::vector<float>{value}, {1}), tensor.dtype());
  const auto at = draw.next() % static_cast<uint64_t>(tensor.size());
  std::memcpy(static_cast<std::byte*>(const_cast<void*>(tensor.raw_data())) + at * one.bytes(), one.raw_data(),
              one.bytes());
}

// The variant that makes the call without the plug-in, or, if it is the judged one, the next best.
std::string variant_beside(const Judged& judged, const examples::TimedCase& timed, DType type) {
  std::string name = judged.registered.variant;
  const auto note = [&](const SlotSpy::Seen& seen) { name = seen.again().name; };
  look_at(timed, judged.slot, type, 0, note);
  cli::with_each_variant(judged.slot, Device::cpu, [&](const VariantBase& v) {
    if (name == judged.registered.variant && name != v.name) look_at(timed, judged.slot, type, 0, note);
  });
  return name;
}

// Compares the slot's call in a case with that of the project's variants, on one thread and on seven, and with two
// drawn numbers of its first tensor large and subnormal, not a number and infinite. Throws Refusal; Error of kind
// forced_variant: it does not take the call.
void check_large(const Judged& judged, const examples::TimedCase& timed, DType type, uint64_t seed) {
  RandomSequence draw({.seed = seed, .layer = 13});
  look_at(timed, judged.slot, type, seed, [&](const SlotSpy::Seen& seen) {
    const std::string what = fmt::format("{} {}", name(type), seen.sizes);
    examples::GuardPages::set_description(what);
    for (const auto& [one, other] : {std::pair{1e4f, 1e-40f}, {NAN, INFINITY}, {1.0f, -INFINITY}}) {
      for (const float value : {one, other}) put(*seen.tensors[0], value, draw);
      const Snapshot before(seen.tensors);
      std::vector<Made> own;
      cli::with_each_variant(judged.slot, Device::cpu, [&](const VariantBase&) {
        before.restore();
        own.push_back(made_by(seen, before));
      });
      Made made;
      for (const int count : {1, 7, 7}) {
        set_threads(count);
        judged.run("large", what, [&] {
          before.restore();
          Made now = made_by(seen, before);
          if (count == 7 && now.written != made.written) throw Refusal("large", "other bits on 7 threads");
          made = std::move(now);
        });
      }
      compare("large", seen, type, made, own);
    }
  });
}

// Times it beside another variant, in turns, on other numbers in each round. Throws as check_large().
Json time_case(const Judged& judged, const examples::TimedCase& timed, DType type, const JudgeOptions& options) {
  constexpr int64_t least_rounds = 6;
  const int64_t most_rounds = options.quick ? 7 : 15;
  const std::string against = options.against.empty() ? variant_beside(judged, timed, type) : options.against;
  std::string what;
  std::vector<double> times[2];
  RandomSequence draw({.seed = options.seed, .layer = 77});
  int64_t calls = 1;  // of each side in a round
  const auto start = Clock::now();
  for (int64_t round = 0; round <= most_rounds; ++round) {  // the first one warms up
    if (round > least_rounds && seconds_since(start) > (options.quick ? 0.7 : 2.0)) break;
    look_at(timed, judged.slot, type, options.seed + static_cast<uint64_t>(round), [&](const SlotSpy::Seen& seen) {
      set_poison(false);  // from here on it would cost time
      what = fmt::format("{} {}", seen.sizes, name(type));
      const Snapshot before(seen.tensors);
      Made made[2];
      double seconds[2] = {};
      const auto call = [&](size_t side) {
        for (int64_t n = 0; n < calls; ++n) {
          before.restore();
          Made now = made_by(seen, before, &seconds[side]);
          if (n > 0 && now.written != made[side].written) {
            throw Refusal("timed", fmt::format("call {} with the same inputs gives other bits", n + 1));
          }
          made[side] = std::move(now);
        }
      };
      const size_t first = draw.next() % 2;
      for (const size_t side : {first, 1 - first}) {
        if (side == 0) {
          judged.run("timed", what, [&] { call(0); });
        } else {
          const cli::ForcedKernels forced({judged.registered.slot + "=" + against});
          call(1);
        }
      }
      compare("timed", seen, type, made[0], {made[1]});
      for (const size_t side : {0, 1}) {
        if (round > 0) times[side].push_back(seconds[side] / static_cast<double>(calls));
      }
      if (round == 0) calls = std::clamp<int64_t>(static_cast<int64_t>(5e-3 / std::min(seconds[0], seconds[1])), 1, 30);
    });
  }
  const Interval interval = ratio_interval(times[1], times[0]);
  return {{"call", what},
          {"against", against},
          {"seconds", median(times[0])},
          {"seconds_against", median(times[1])},
          {"rounds", times[0].size()},
          {"ratio", median(times[1]) / median(times[0])},
          {"ratio_low", finite_or_null(interval.low)},
          {"ratio_high", finite_or_null(interval.high)}};
}

// The slot's cases at this batch.
std::vector<examples::TimedCase> cases_of(const KernelSlot& slot, int64_t batch) {
  auto cases = examples::timed_cases(batch);
  std::erase_if(cases, [&](const auto& one) { return std::ranges::count(one.slots, &slot) == 0; });
  return cases;
}

}  // namespace

void check_timed(Judged& judged, const JudgeOptions& options, const std::vector<DType>& types) {
  // What is large fits into the memory, and takes the slowest loops not long.
  const auto cases = cases_of(judged.slot, options.batch),
             large = cases_of(judged.slot, std::min<int64_t>(options.batch, options.quick ? 8 : 64));
  std::vector<std::pair<size_t, DType>> all;
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const DType type : types) {
      if (type != DType::f64) all.emplace_back(i, type);  // that is for checks alone
    }
  }
  const std::string no_room = fmt::format("calls with batch {} take too much memory", options.batch);
  const auto is_memory = [](const Error& error) { return error.code() == ExitCode::out_of_memory; };
  std::string untimed = fmt::format("no row of {} says at which size", judged.slot.name());
  const auto each = [&](const std::string& check, const auto& work) {
    int64_t runs = 0;
    for (const auto& [index, type] : spread(all, options.quick ? 2 : 9)) {
      try {
        work(index, type);
        ++runs;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::forced_variant && !(check == "timed" && is_memory(error))) throw;
        untimed = is_memory(error) ? no_room : "it, or the variant beside it, does not take these calls";
      } catch (const std::bad_alloc&) {
        if (check != "timed") throw;
        untimed = no_room;
      }
    }
    judged.passed(check, runs);
  };
  {
    const examples::GuardPages guard;
    each("large", [&](size_t index, DType type) { check_large(judged, large[index], type, options.seed); });
  }
  ::mallopt(M_MMAP_MAX, 0);  // since the guard nothing is cached, and new pages in each call would take its time
  each("timed", [&](size_t index, DType type) {
    judged.verdict["timed"].push_back(time_case(judged, cases[index], type, options));
  });
  if (judged.verdict["timed"].empty()) judged.verdict["untimed"] = untimed;
}

}  // namespace hs::bench::judge
