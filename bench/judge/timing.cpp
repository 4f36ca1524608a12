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
  std::vector<Shape> shapes;
  double nonzero = 1, bytes = 0;
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

double nonzero_share(const Tensor& tensor) {
  if (!measure::is_measured(tensor) || tensor.size() == 0) return 1;
  const std::vector<double> numbers = measure::numbers_of(tensor);
  return 1 - static_cast<double>(std::ranges::count(numbers, 0.0)) / static_cast<double>(numbers.size());
}

Sample sample_of(const examples::TimedCase& timed, const KernelSlot& slot, DType type, uint64_t seed) {
  Sample sample;
  set_poison(true);
  look_at(timed, slot, type, type, seed, [&](const SlotSpy::Seen& seen) {
    std::vector<uint64_t> versions;
    for (const Tensor* tensor : seen.tensors) {
      versions.push_back(tensor->version());
      sample.before.push_back(tensor->defined() ? tensor->clone() : Tensor());
      sample.shapes.push_back(tensor->defined() ? tensor->shape() : Shape{0});
      sample.bytes += static_cast<double>(tensor->bytes());
    }
    seen.again();
    for (size_t i = 0; i < versions.size(); ++i) {
      const Tensor& tensor = *seen.tensors[i];
      sample.written.push_back(tensor.version() != versions[i]);
      sample.after.push_back(sample.written[i] ? tensor.clone() : Tensor());
      const Tensor& before = sample.before[i];
      sample.fresh.push_back(sample.written[i] &&
                             is_poison({static_cast<const unsigned char*>(before.raw_data()), before.bytes()}));
      if (tensor.defined() && !sample.written[i]) sample.nonzero *= nonzero_share(tensor);
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

  Json prepare(Examiner& side) const {
    const Json answer = side.ask(
        {{"do", "case"}, {"case", index_}, {"batch", plan_.batch}, {"type", static_cast<int>(type_)}, {"calls", sets}});
    if (answer.contains("error") && !answer.value("unsupported", false)) {
      throw Refusal("timed", answer.at("error").get<std::string>());
    }
    return answer.value("calls", Json::array());
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

  TimedResult run_rounds(Ceilings& ceilings) {
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
    check_floor(median(result.seconds), sample, ceilings);
    return result;
  }

  // Ceilings that were measured while others computed may be too low: they are measured again before they refuse.
  void check_floor(double seconds, const Sample& sample, Ceilings& ceilings) const {
    for (int again = 0;; ++again) {
      const double least = least_seconds(slot_.name(), sample.shapes, sample.bytes, type_, sample.nonzero, ceilings);
      if (seconds >= least) return;
      if (again == 10) {
        throw Refusal("floor",
                      fmt::format("a call took {:.3g} us, and no algorithm on this machine can take less than {:.3g}",
                                  seconds * 1e6, least * 1e6));
      }
      const Ceilings now = measure_ceilings();
      ceilings = {std::max(ceilings.flops, now.flops), std::max(ceilings.bytes, now.bytes)};
    }
  }

 public:
  Timing(Examiner& judged, Examiner& against, const KernelSlot& slot, size_t index, DType type, const TimingPlan& plan)
      : sides_{&judged, &against}, slot_(slot), type_(type), plan_(plan), index_(index), timed_(plan.cases[index]) {}

  // Nothing if a side does not take the call.
  std::optional<TimedResult> run(Ceilings& ceilings) {
    for (const size_t side : {0, 1}) places_[side] = prepare(*sides_[side]);
    std::optional<TimedResult> result;
    if (!places_[0].empty() && !places_[1].empty()) result = run_rounds(ceilings);
    for (const size_t side : {0, 1}) {
      if (!places_[side].empty()) sides_[side]->end_calls();
    }
    return result;
  }
};

}  // namespace

Ceilings measure_ceilings() {
  constexpr size_t size = 96 << 10;  // in and out fit into the second level of every cache
  constexpr int64_t copies = 200;    // in a millisecond or two: some rounds have the cores for themselves
  const auto team = static_cast<size_t>(threads());
  std::vector<std::vector<char>> from(team, std::vector<char>(size, 1)), to(team, std::vector<char>(size, 2));
  double best = 0;
  for (int round = 0; round < 40; ++round) {
    const auto start = Clock::now();
    parallel(static_cast<int64_t>(team), [&](int64_t piece, int) {
      const auto i = static_cast<size_t>(piece);
      for (int64_t n = 0; n < copies; ++n) {
        from[i][0] = static_cast<char>(n);
        std::memcpy(to[i].data(), from[i].data(), size);
      }
    });
    best = std::max(best, 2.0 * size * copies * static_cast<double>(team) / seconds_since(start));
  }
  return {measure::peak_flops_of_cpu(), best};
}

double least_seconds(const std::string& slot, std::span<const Shape> shapes, double bytes, DType type, double nonzero,
                     const Ceilings& ceilings) {
  const CpuFeatures& cpu = cpu_features();
  double flops = measure::flops_of(slot, shapes) * nonzero, rate = ceilings.flops;
  if (slot.starts_with("conv2d")) flops /= 324.0 / 64;  // 36 x 9 products become 8 x 8
  if (slot == "gemm") {
    double side = INFINITY;
    for (const Shape& shape : shapes) {
      for (int axis = 0; axis < shape.rank() && shape.size() > 0; ++axis)
        side = std::min(side, static_cast<double>(shape[axis]));
    }
    for (; side >= 128; side /= 2) flops *= 7.0 / 8;
  }
  if (size_of(type) == 2) rate *= cpu.amx_bf16 ? 32 : 2;
  return std::max(bytes / ceilings.bytes, flops / rate) *
         0.6;  // the ceilings may be off, and the clock speeds of two moments
}

std::string variant_beside(const examples::TimedCase& timed, KernelSlot& slot, DType type, const std::string& judged) {
  std::string name = judged;
  const auto note = [&](const SlotSpy::Seen& seen) { name = seen.again().name; };
  look_at(timed, slot, type, type, 0, note);
  cli::with_each_variant(slot, Device::cpu, [&](const VariantBase& v) {
    if (name == judged && judged != v.name) look_at(timed, slot, type, type, 0, note);
  });
  return name;
}

std::optional<TimedResult> time_case(Examiner& judged, Examiner& against, const KernelSlot& slot, size_t index,
                                     DType type, const TimingPlan& plan, Ceilings& ceilings) {
  return Timing(judged, against, slot, index, type, plan).run(ceilings);
}

}  // namespace hs::bench::judge
