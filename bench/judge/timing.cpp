#include "bench/judge/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bench/cli/clock.h"
#include "bench/cli/forced_kernels.h"
#include "bench/cli/statistics.h"
#include "bench/judge/watch.h"
#include "bench/judge/wire.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/timed_case.h"
#include "engine/cpu_features.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"

namespace hs::bench::judge {
namespace {

using measure::SlotSpy;

// A call of the slot that the op made in this process on numbers of its own: what the tensors held before, and after a
// variant of the project's own had run.
struct Sample {
  std::vector<Tensor> before, after;
  std::vector<bool> written, fresh;  // fresh: it held nothing before
};

// Calls look() with the case's first call of the slot.
void look_at(const examples::TimedCase& timed, const KernelSlot& slot, DType type, DType rounded, uint64_t seed,
             const SlotSpy::Look& look) {
  bool seen_once = false;
  measure::run_case(timed, type, rounded, Device::cpu, seed, [&](const SlotSpy::Seen& seen) {
    const bool is_it = &seen.slot == &slot && !seen_once;
    seen_once = seen_once || is_it;
    is_it ? look(seen) : static_cast<void>(seen.again());
  });
}

Sample sample_of(const examples::TimedCase& timed, const KernelSlot& slot, DType type, uint64_t seed) {
  Sample sample;
  set_poison(true);
  look_at(timed, slot, type, type, seed, [&](const SlotSpy::Seen& seen) {
    std::vector<uint64_t> versions;
    for (const Tensor* tensor : seen.tensors) {
      versions.push_back(tensor->version());
      sample.before.push_back(tensor->defined() ? tensor->clone() : Tensor());
    }
    seen.again();
    for (size_t i = 0; i < versions.size(); ++i) {
      const Tensor& tensor = *seen.tensors[i];
      sample.written.push_back(tensor.version() != versions[i]);
      sample.after.push_back(sample.written[i] ? tensor.clone() : Tensor());
      const Tensor& before = sample.before[i];
      sample.fresh.push_back(sample.written[i] &&
                             is_poison({static_cast<const unsigned char*>(before.raw_data()), before.bytes()}));
    }
  });
  set_poison(false);
  return sample;
}

// How far an output is off: ||got - wanted|| / ||wanted||, and the largest |got - wanted| in units of wanted's root
// mean square. Infinite where one is not finite and the other is.
struct Errors {
  double norm = 0, largest = 0;
};

Errors errors_of(const std::vector<double>& got, const std::vector<double>& wanted) {
  double difference = 0, square = 0, largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!std::isfinite(got[i]) && !std::isfinite(wanted[i])) continue;
    const double d = std::fabs(got[i] - wanted[i]);
    largest = std::max(largest, std::isnan(d) ? INFINITY : d);
    difference += d * d;
    square += wanted[i] * wanted[i];
  }
  if (largest == 0) return {};
  return {std::sqrt(difference / square), largest / std::sqrt(square / static_cast<double>(wanted.size()))};
}

// The same numbers as those of a tensor of another type, past its count of modifications.
void put_numbers(const Tensor& to, const Tensor& from) {
  if (!to.defined() || to.bytes() == 0) return;
  const Tensor same = to.dtype() == from.dtype() ? from : cast(from, to.dtype());
  std::memcpy(const_cast<void*>(to.raw_data()), same.raw_data(), same.bytes());
}

// What the project's own variants are off by in each output; others may be a few times that. By the call's tensors.
std::vector<Errors> own_errors(const examples::TimedCase& timed, const KernelSlot& slot, DType type,
                               const Sample& sample, const std::vector<measure::Output>& exact) {
  std::vector<Errors> all(sample.before.size());
  const auto look = [&](const SlotSpy::Seen& seen) {
    for (size_t i = 0; i < sample.before.size(); ++i) put_numbers(*seen.tensors[i], sample.before[i]);
    seen.again();
    for (const measure::Output& output : exact) {
      const Errors errors = errors_of(measure::numbers_of(*seen.tensors[output.tensor]), output.numbers);
      Errors& own = all[output.tensor];
      own = {std::max(own.norm, errors.norm), std::max(own.largest, errors.largest)};
    }
  };
  cli::with_each_variant(slot, Device::cpu, [&](const VariantBase&) { look_at(timed, slot, type, type, 0, look); });
  return all;
}

// In f64, of the numbers that the sample's call works on: those of the op's earlier kernels in f64 would be others.
std::vector<measure::Output> exact_outputs(const examples::TimedCase& timed, const KernelSlot& slot, DType type,
                                           const Sample& sample) {
  std::vector<measure::Output> outputs;
  look_at(timed, slot, DType::f64, type, 0, [&](const SlotSpy::Seen& seen) {
    for (size_t i = 0; i < sample.before.size(); ++i) {
      if (!sample.fresh[i]) put_numbers(*seen.tensors[i], sample.before[i]);
    }
    outputs = measure::outputs_of(seen);
  });
  return outputs;
}

// Both sides of one case: the calls' places in their memory, and how to fill and compare them.
class Timing {
  static constexpr int64_t least_rounds = 6;
  static constexpr size_t sets = 10;  // calls that exist at once, each at a place of its own
  Examiner* const sides_[2];
  const KernelSlot& slot_;
  const DType type_;
  const TimingPlan& plan_;
  const size_t index_;  // in plan_.cases
  const examples::TimedCase& timed_;
  Json places_[2];
  std::vector<Errors> own_;
  RandomSequence draw_{{plan_.seed, RandomPurpose::synthetic, 77, 0, 0}};

  // Returns why the side's calls cannot be timed, or "".
  std::string prepare(size_t side) {
    const Json answer = sides_[side]->ask(
        {{"do", "case"}, {"case", index_}, {"batch", plan_.batch}, {"type", static_cast<int>(type_)}, {"calls", sets}});
    if (answer.contains("calls")) return places_[side] = answer.at("calls"), "";
    if (answer.value("no_room", false)) {
      return fmt::format("{} calls with batch {} need more than {} GiB", sets, plan_.batch, call_bytes >> 30);
    }
    if (!answer.value("unsupported", false)) throw Refusal("timed", answer.at("error").get<std::string>());
    return "it, or the variant beside it, does not take these calls";
  }

  void fill(size_t side, size_t set, const Sample& sample) {
    for (size_t i = 0; i < sample.before.size(); ++i) {
      const Json& place = places_[side].at(set).at(i);
      if (!sample.before[i].defined() || sample.before[i].bytes() == 0) continue;
      const std::span<std::byte> memory = sides_[side]->memory();
      const auto at = place.at("at").get<size_t>(), bytes = sample.before[i].bytes();
      if (place.at("bytes") != bytes || at > memory.size() || bytes > memory.size() - at) {
        throw Refusal("timed", fmt::format("tensor {} of its call is not where it should be", i));
      }
      if (sample.fresh[i]) {  // no number of an earlier call may stay there
        std::memset(memory.data() + at, static_cast<int>(draw_.next() & 0xff), bytes);
      } else {
        std::memcpy(memory.data() + at, sample.before[i].raw_data(), bytes);
      }
    }
  }

  Tensor tensor_at(size_t side, size_t set, size_t tensor, const Tensor& like) const {
    Tensor copy = like.empty_like();
    const auto at = places_[side].at(set).at(tensor).at("at").get<size_t>();
    if (copy.bytes() > 0) std::memcpy(copy.mutable_raw_data(), sides_[side]->memory().data() + at, copy.bytes());
    return copy;
  }

  // With what a variant of the project's own made of the same numbers: as far as two variants may be apart.
  void compare(size_t set, const Sample& sample) {
    const bool has_numbers = std::ranges::any_of(sample.after, measure::is_measured);
    for (size_t i = 0; i < sample.before.size(); ++i) {
      if (!sample.before[i].defined()) continue;
      const Tensor got = tensor_at(0, set, i, sample.before[i]);
      if (!sample.written[i]) {
        if (got.bytes() > 0 && std::memcmp(got.raw_data(), sample.before[i].raw_data(), got.bytes()) != 0) {
          throw Refusal("inputs", fmt::format("a timed call changed tensor {} {}", i, got.to_string()));
        }
      } else if (measure::is_measured(got) || !has_numbers) {
        const Errors errors = errors_of(measure::numbers_of(got), measure::numbers_of(sample.after[i]));
        const double most = 8 * std::max(own_[i].norm, measure::largest_error(type_));
        if (!(errors.norm <= most)) {
          throw Refusal("timed",
                        fmt::format("a timed call left tensor {} {} off by {:.2g} of its norm, at most {:.2g} is "
                                    "accepted",
                                    i, got.to_string(), errors.norm, most));
        }
      }
    }
  }

  void compare_exactly(size_t set, const Sample& sample) {
    const std::vector<measure::Output> exact = exact_outputs(timed_, slot_, type_, sample);
    for (const measure::Output& output : exact) {
      const Tensor got = tensor_at(0, set, output.tensor, sample.before[output.tensor]);
      const Errors errors = errors_of(measure::numbers_of(got), output.numbers), own = own_[output.tensor];
      // The own variants' sums of a few terms may be exact by luck: one rounding is never too much.
      const DType type = got.dtype();
      const double unit = type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
      if (!(errors.norm <= std::max(4 * own.norm, unit)) || !(errors.largest <= 8 * std::max(own.largest, unit))) {
        throw Refusal(
            "precision",
            fmt::format("tensor {} of a timed call is off by {:.2g} of its norm and {:.2g} in one element, the "
                        "project's own variants by {:.2g} and {:.2g} at most",
                        output.tensor, errors.norm, errors.largest, own.norm, own.largest));
      }
    }
  }

  // So many that they take the time of a hundred messages.
  size_t calls_a_round() {
    double one = 0;
    for (Examiner* side : sides_) one = side->run_calls({0, 1}) / 2;  // of the variant beside, the second
    return std::clamp<size_t>(static_cast<size_t>(std::ceil(5e-3 / one)), 2, sets - 2);
  }

  TimedResult run_rounds() {
    TimedResult result;
    const Sample sample = sample_of(timed_, slot_, type_, plan_.seed);
    own_ = own_errors(timed_, slot_, type_, sample, exact_outputs(timed_, slot_, type_, sample));
    const size_t count = calls_a_round();
    const auto start = Clock::now();
    std::vector<size_t> order(sets);
    std::iota(order.begin(), order.end(), size_t{0});
    // The first one warms up.
    for (int64_t round = 0; round <= plan_.rounds && (round <= least_rounds || seconds_since(start) < plan_.seconds);
         ++round) {
      for (size_t i = sets - 1; i > 0; --i) std::swap(order[i], order[draw_.next() % (i + 1)]);
      const std::vector<size_t> calls(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
      const uint64_t first_seed = plan_.seed + 1 + static_cast<uint64_t>(round) * sets;
      std::vector<Sample> samples;
      for (size_t i = 0; i < count; ++i) {
        samples.push_back(sample_of(timed_, slot_, type_, first_seed + i));
        for (const size_t side : {0, 1}) fill(side, calls[i], samples[i]);
      }
      const size_t first = draw_.next() % 2;
      for (const size_t side : {first, 1 - first}) {
        const double seconds = sides_[side]->run_calls(calls) / static_cast<double>(count);
        if (round > 0) (side == 0 ? result.seconds : result.seconds_against).push_back(seconds);
      }
      sides_[0]->check_threads();
      for (size_t i = 0; i < count; ++i) compare(calls[i], samples[i]);
      const size_t exact = draw_.next() % count;  // nobody knows which
      compare_exactly(calls[exact], samples[exact]);
    }
    return result;
  }

 public:
  Timing(Examiner& judged, Examiner& against, const KernelSlot& slot, size_t index, DType type, const TimingPlan& plan)
      : sides_{&judged, &against}, slot_(slot), type_(type), plan_(plan), index_(index), timed_(plan.cases[index]) {}

  TimedResult run() {
    TimedResult result;
    result.what = prepare(0);
    if (result.what.empty()) result.what = prepare(1);
    if (result.what.empty()) result = run_rounds();
    for (const size_t side : {0, 1}) {
      if (!places_[side].empty()) sides_[side]->end_calls();
    }
    return result;
  }
};

}  // namespace

std::string variant_beside(const examples::TimedCase& timed, KernelSlot& slot, DType type, const std::string& judged) {
  std::string name = judged;
  const auto note = [&](const SlotSpy::Seen& seen) { name = seen.again().name; };
  look_at(timed, slot, type, type, 0, note);
  cli::with_each_variant(slot, Device::cpu, [&](const VariantBase& v) {
    if (name == judged && judged != v.name) look_at(timed, slot, type, type, 0, note);
  });
  return name;
}

TimedResult time_case(Examiner& judged, Examiner& against, const KernelSlot& slot, size_t index, DType type,
                      const TimingPlan& plan) {
  return Timing(judged, against, slot, index, type, plan).run();
}

}  // namespace hs::bench::judge
