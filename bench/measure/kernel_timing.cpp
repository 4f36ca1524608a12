#include "bench/measure/kernel_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/cli/clock.h"
#include "bench/cli/environment.h"
#include "bench/cli/forced_kernels.h"
#include "bench/cli/statistics.h"
#include "bench/measure/observers/kernel_trace.h"
#include "engine/ambient.h"
#include "engine/autograd.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "engine/slots.h"
#include "kernels/cast/cast.h"
#include "kernels/gemm/gemm.h"

namespace hs::bench::measure {
namespace {

// More than the caches hold.
constexpr int64_t flush_bytes = int64_t{128} << 20;

class CacheFlush {
 public:
  explicit CacheFlush(Device device) : memory_(Tensor::empty({flush_bytes}, DType::u8, device)) {}
  void operator()() { runtime(memory_.device()).fill(memory_.mutable_raw_data(), ++byte_ & 0xff, flush_bytes); }

 private:
  Tensor memory_;
  int byte_ = 0;
};

// ||got - reference|| / ||reference||
double relative_error(const std::vector<Output>& got, const std::vector<Output>& reference) {
  double difference = 0, norm = 0;
  for (size_t output = 0; output < reference.size(); ++output) {
    const std::vector<double>&expected = reference[output].numbers, &numbers = got[output].numbers;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!std::isfinite(expected[i]) && !std::isfinite(numbers[i])) continue;  // f16 gradients that overflowed
      difference += (numbers[i] - expected[i]) * (numbers[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

// Fills the outputs with NaN, makes the call, and returns its relative error.
double error_of(const SlotSpy::Seen& seen, const std::vector<Output>& reference) {
  for (const Output& output : reference) {
    Tensor tensor = *seen.tensors[output.tensor];  // the same memory
    runtime(tensor.device()).fill(tensor.mutable_raw_data(), 0xff, static_cast<size_t>(tensor.bytes()));
  }
  seen.again();
  std::vector<Output> got;
  for (const Output& output : reference) got.push_back({output.tensor, numbers_of(*seen.tensors[output.tensor])});
  return relative_error(got, reference);
}

// The variant that a call runs (the forced one, if one is forced), or nullptr if none supports it.
const VariantBase* variant_of_call(const SlotSpy::Seen& seen) {
  try {
    return &seen.again();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::other) throw;
  }
  return nullptr;
}

double peak_flops_of_gemm(Device device) {
  constexpr int64_t side = 4096;
  const Tensor a = Tensor::zeros({side, side}, DType::f16, device), b = a.clone();
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double seconds = seconds_on(device, [&] { static_cast<void>(matmul(a, b)); });
    best = std::max(best, 2.0 * side * side * side / seconds);
  }
  return best;
}

SlotCall described(const examples::TimedCase& kernel, const SlotSpy::Seen& seen) {
  SlotCall call{.what = seen.sizes + kernel.remark, .slot = seen.slot.name()};
  std::vector<Shape> shapes;
  for (const Tensor* tensor : seen.tensors) {
    shapes.push_back(tensor->defined() ? tensor->shape() : Shape{0});
    call.elements += static_cast<double>(shapes.back().size());
  }
  call.flops = flops_of(call.slot, shapes);
  for (const VariantBase* v = seen.slot.variants(); v; v = v->next) {
    if (v->device == seen.tensors.front()->device()) call.variants.emplace_back(v->name);
  }
  return call;
}

// Compares one call of each variant with the reference.
void verify(const SlotSpy::Seen& seen, const std::vector<Output>& reference, CaseTiming& timing) {
  const VariantBase* chosen = variant_of_call(seen);
  timing.chosen = chosen ? chosen->name : "";
  cli::with_each_variant(seen.slot, seen.tensors.front()->device(), [&](const VariantBase& variant) {
    const double error = error_of(seen, reference);
    const double grown = (variant.error_growth - 1) * largest_error(DType::f32);  // of sums, before they are rounded
    timing.variants.push_back({variant.name, error, !(error <= largest_error(timing.type) + grown)});
  });
}

double slowest(const std::vector<double>& times) { return *std::ranges::max_element(times); }
double fastest(const std::vector<double>& times) { return *std::ranges::min_element(times); }

// Whether another variant was 20 times as fast. Never the chosen one, to which the others are compared.
bool is_far_behind(const VariantTiming& one, const CaseTiming& timing) {
  return one.warm.size() >= 3 && one.variant != timing.chosen &&
         std::ranges::any_of(timing.variants, [&](const VariantTiming& other) {
           return !other.warm.empty() && fastest(one.warm) > 20 * fastest(other.warm);
         });
}

// flush: without it there are no cold calls, and a variant that falls far behind gets no more rounds: only the fastest
// is asked for.
void measure(const SlotSpy::Seen& seen, Device device, int64_t rounds, double seconds, CacheFlush* flush,
             CaseTiming& timing) {
  const Clock::time_point start = Clock::now();
  std::vector<int64_t> calls(timing.variants.size(), 0);  // per timing, to last about 2 ms
  const int64_t least = flush ? 3 : 7;
  for (int64_t round = 0; round < rounds && (round < least || seconds_since(start) < seconds); ++round) {
    for (size_t i = 0; i < timing.variants.size(); ++i) {
      VariantTiming& one = timing.variants[i];
      if (one.wrong || (!flush && is_far_behind(one, timing))) continue;
      const cli::ForcedKernels forced({timing.slot + "=" + one.variant});
      if (flush) {
        (*flush)();
        one.cold.push_back(seconds_on(device, seen.again));
      }
      if (calls[i] == 0) {
        calls[i] = std::clamp<int64_t>(static_cast<int64_t>(2e-3 / seconds_on(device, seen.again)), 1, 1000);
      }
      const double warm = seconds_on(device, [&] {
        for (int64_t n = 0; n < calls[i]; ++n) seen.again();
      });
      one.warm.push_back(warm / static_cast<double>(calls[i]));
    }
  }
}

// What the tensors that a call writes held before it; optimizers and sums read it.
class Before {
 public:
  explicit Before(const SlotSpy::Seen& seen) : tensors_(seen.tensors) {
    for (const Tensor* tensor : tensors_) {
      versions_.push_back(tensor->version());
      copies_.push_back(tensor->defined() ? tensor->clone() : Tensor());
    }
  }
  void restore() const {
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (tensors_[i]->version() == versions_[i]) continue;
      Tensor tensor = *tensors_[i];  // the same memory
      tensor.copy_from(copies_[i]);
    }
  }

 private:
  const CallTensors tensors_;
  std::vector<uint64_t> versions_;
  std::vector<Tensor> copies_;
};

// Looser than largest_error(): the reference is a variant of the same type, and gradients cancel more than random
// numbers.
double largest_difference(const SlotSpy::Seen& seen, bool tf32) {
  double largest = 1e-4;
  for (const Tensor* tensor : seen.tensors) {
    if (!tensor->defined()) continue;
    if (size_of(tensor->dtype()) == 2) largest = std::max(largest, 4 * largest_error(tensor->dtype()));
    if (tf32 && tensor->dtype() == DType::f32) largest = std::max(largest, 4 * largest_error(DType::f16));
  }
  return largest;
}

}  // namespace

double largest_error(DType type) {
  if (type == DType::f16) return 4e-4;
  if (type == DType::bf16) return 3.2e-3;
  return 2e-6;
}

Peaks measure_peaks(Device device) {
  Peaks peaks;
  if (device == Device::cpu) {
    peaks.flops = peak_flops_of_cpu();
    peaks.flops_of = "f32 multiply-adds in registers on every thread";
  } else if (std::string_view(cli::build_info.cuda).starts_with("EMULATED")) {
    return {NAN, NAN, "not measured on an emulated device"};  // which would take minutes
  } else {
    peaks.flops = peak_flops_of_gemm(device);
    peaks.flops_of = "the f16 product of two 4096 x 4096 matrices";
  }
  const Tensor from = Tensor::zeros({flush_bytes / 4}, DType::f32, device);
  Tensor to = from.empty_like();
  for (int round = 0; round < 5; ++round) {
    const double seconds = seconds_on(device, [&] { cast_forward({from, to}); });  // f32 to f32: a copy, on all threads
    peaks.bytes = std::max(peaks.bytes, 2.0 * flush_bytes / seconds);
  }
  return peaks;
}

std::vector<SlotCall> calls_of(const examples::TimedCase& kernel, Device device) {
  std::vector<SlotCall> calls;
  run_case(kernel, DType::f32, std::nullopt, device, 0,
           [&](const SlotSpy::Seen& seen) { calls.push_back(described(kernel, seen)); });
  return calls;
}

std::vector<CaseTiming> time_kernels(const examples::TimedCase& kernel, DType type, Device device, int64_t rounds,
                                     double seconds) {
  std::vector<std::vector<Output>> references;
  run_case(kernel, DType::f64, type, Device::cpu, 0,
           [&](const SlotSpy::Seen& seen) { references.push_back(outputs_of(seen)); });
  std::vector<CaseTiming> timings;
  run_case(kernel, type, type, device, 0, [&](const SlotSpy::Seen& seen) {
    const SlotCall call = described(kernel, seen);
    CaseTiming& timing = timings.emplace_back(CaseTiming{call.what, call.slot, type, call.flops});
    for (const Tensor* tensor : seen.tensors) {
      if (is_measured(*tensor)) timing.bytes += static_cast<double>(tensor->bytes());
    }
    verify(seen, references[timings.size() - 1], timing);
    CacheFlush flush(device);
    measure(seen, device, rounds, seconds, &flush, timing);
  });
  return timings;
}

CaseTiming time_call(const SlotSpy::Seen& seen, bool tf32, int64_t rounds, double seconds) {
  CaseTiming timing{.what = seen.sizes, .slot = seen.slot.name()};
  const Before before(seen);
  const VariantBase& chosen = seen.again();
  timing.chosen = chosen.name;
  timing.device = chosen.device;
  const std::string_view layout = chosen.layout ? chosen.layout : "";
  std::vector<std::vector<Output>> outputs;
  cli::with_each_variant(seen.slot, chosen.device, [&](const VariantBase& v) {
    if (layout != (v.layout ? v.layout : "")) return;
    before.restore();
    outputs.push_back(outputs_of(seen));
    timing.variants.emplace_back().variant = v.name;
  });
  for (size_t i = 0; i < outputs.size(); ++i) {
    timing.variants[i].error = relative_error(outputs[i], outputs.back());
    timing.variants[i].wrong = !(timing.variants[i].error <= largest_difference(seen, tf32));
  }
  if (outputs.size() > 1) measure(seen, chosen.device, rounds, seconds, nullptr, timing);
  before.restore();
  seen.again();
  return timing;
}

const VariantTiming* fastest(const CaseTiming& timing) {
  const VariantTiming* best = nullptr;
  for (const VariantTiming& one : timing.variants) {
    if (!one.wrong && (!best || median(one.warm) < median(best->warm))) best = &one;
  }
  return best;
}

Json slower_choices(const std::vector<CaseTiming>& timings, std::vector<std::string>& sentences) {
  Json all = Json::array();
  for (const CaseTiming& timing : timings) {
    const VariantTiming* best = fastest(timing);
    for (const VariantTiming& one : timing.variants) {
      if (one.variant != timing.chosen || one.wrong) continue;
      const double ratio = median(one.warm) / median(best->warm);
      if (ratio <= 1.05) continue;
      all.push_back({{"slot", timing.slot},
                     {"sizes", timing.what},
                     {"type", name(timing.type)},
                     {"chosen", timing.chosen},
                     {"fastest", best->variant},
                     {"ratio", ratio}});
      sentences.push_back(
          fmt::format("{} {} {}: {} was chosen, {} is {:.2f} times as fast; see halfstep-bench tune kernels",
                      timing.slot, name(timing.type), timing.what, timing.chosen, best->variant, ratio));
    }
  }
  return all;
}

Json to_json(const CaseTiming& timing, const Peaks& peaks, report::Rows& rows) {
  std::vector<VariantTiming> ladder = timing.variants;
  std::ranges::stable_sort(ladder, [](const VariantTiming& a, const VariantTiming& b) {
    if (a.wrong || b.wrong) return a.wrong && !b.wrong;
    return median(a.warm) > median(b.warm);
  });
  rows.json = Json::array();
  for (const VariantTiming& one : ladder) {
    const double warm = median(one.warm), flops = timing.flops / warm, bytes = timing.bytes / warm;
    const auto timed = [&](double value) { return one.wrong ? Json() : Json(value); };
    const auto computed = [&](double value) { return timing.flops > 0 ? timed(value) : Json(); };
    const double low = one.wrong ? NAN : fastest(one.warm), high = one.wrong ? NAN : slowest(one.warm);
    rows.add(
        {{"", timing.slot, "kernel"},
         {"", timing.what, "sizes"},
         {"", name(timing.type), "type"},
         {"variant", one.variant},
         {"", one.variant + (one.variant == timing.chosen ? " *" : ""), "variant"},
         {"relative_error", one.error},
         {"", std::isfinite(one.error) ? fmt::format("{:.1e}", one.error) : "not finite", "error"},
         {"wrong", one.wrong},
         {"warm_seconds", timed(warm), "warm us", "{:.1f}", 1e6},
         {"warm_seconds_range", finite_or_null(std::vector{low, high})},
         {"", one.wrong ? "" : fmt::format("{:.1f} .. {:.1f}", low * 1e6, high * 1e6), "range us"},
         {"cold_seconds", timed(median(one.cold)), "cold us", "{:.1f}", 1e6},
         {"rounds", one.warm.size()},
         {"flops_per_second", timed(flops)},
         {"", computed(flops), "GFLOP/s", "{:.1f}", 1e-9},
         {"share_of_peak_flops", timed(flops / peaks.flops)},
         {"", computed(flops / peaks.flops), "of peak", "{:.1f} %", 100},
         {"bytes_per_second", timed(bytes), "GB/s", "{:.1f}", 1e-9},
         {"share_of_peak_bytes", timed(bytes / peaks.bytes), "of peak", "{:.1f} %", 100},
         {"",
          one.wrong ? fmt::format("WRONG: the largest accepted is {:.1e}; not timed", largest_error(timing.type)) : "",
          "remark"}});
  }
  if (ladder.empty()) rows.table.lines.push_back({timing.slot, timing.what, name(timing.type), "none for this type"});
  return {{"slot", timing.slot},   {"sizes", timing.what},    {"type", hs::name(timing.type)}, {"flops", timing.flops},
          {"bytes", timing.bytes}, {"chosen", timing.chosen}, {"variants", rows.json}};
}

}  // namespace hs::bench::measure
