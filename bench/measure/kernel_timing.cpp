#include "bench/measure/kernel_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/cli/clock.h"
#include "bench/cli/environment.h"
#include "bench/cli/forced_kernels.h"
#include "bench/cli/plugins.h"
#include "bench/cli/statistics.h"
#include "bench/measure/observers/kernel_trace.h"
#include "engine/slots.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/checks.h"
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

const examples::RowFailures& failures_of(const KernelSlot& slot, Device device, DType type) {
  const HiddenPlugins hidden(&slot);
  return examples::row_failures(slot, device, type);
}

// Notes how far off the variant is, and what it is refused for. rounded: as what numbers may be.
void note(const std::string& variant, const std::vector<Output>& got, const std::vector<Output>& reference,
          DType rounded, const examples::RowFailures& failures, CaseTiming& timing) {
  const examples::Comparison result = compare(got, reference, rounded);
  const auto failed = failures.find(variant);
  const std::string wrong = failed != failures.end() ? failed->second : result.passed ? "" : result.summary;
  timing.variants.push_back({variant, result.relative_norm, wrong});
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

// What the table says of a call, and its operations and bytes.
CaseTiming described(const examples::TimedCase& kernel, const SlotSpy::Seen& seen, DType type) {
  CaseTiming timing{.what = seen.sizes + kernel.remark, .slot = seen.slot.name(), .type = type};
  std::vector<Shape> shapes;
  for (const Tensor* tensor : seen.tensors) {
    shapes.push_back(tensor->defined() ? tensor->shape() : Shape{0});
    if (is_measured(*tensor)) timing.bytes += static_cast<double>(tensor->bytes());
  }
  timing.flops = flops_of(timing.slot, shapes);
  return timing;
}

// Compares one call of each variant with the reference.
void verify(const SlotSpy::Seen& seen, const std::vector<Output>& reference, CaseTiming& timing) {
  const VariantBase* chosen = variant_of_call(seen);
  const Device device = seen.tensors.front()->device();
  const examples::RowFailures& failures = failures_of(seen.slot, device, timing.type);
  timing.chosen = chosen ? chosen->name : "";
  cli::with_each_variant(seen.slot, device, [&](const VariantBase& variant) {
    for (const Output& output : reference) {  // NaN where it writes nothing
      Tensor tensor = *seen.tensors[output.tensor];
      runtime(device).fill(tensor.mutable_raw_data(), 0xff, static_cast<size_t>(tensor.bytes()));
    }
    note(variant.name, outputs_of(seen), reference, timing.type, failures, timing);
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

// The one timer of calls: the variants take turns, each turn lasts long enough for the clock. flush: without it there
// are no cold calls, and a variant that falls far behind gets no more rounds if only the fastest is asked for.
void measure(const SlotSpy::Seen& seen, Device device, const TimingOptions& options, CacheFlush* flush,
             CaseTiming& timing) {
  const Clock::time_point start = Clock::now();
  std::vector<int64_t> calls(timing.variants.size(), 0);  // per timing, to last about 2 ms
  const int64_t least = flush ? 3 : 7;
  const bool drops = !flush && options.only.empty();
  for (int64_t round = 0; round < options.rounds; ++round) {
    if (round >= least && seconds_since(start) >= options.seconds) break;
    for (size_t i = 0; i < timing.variants.size(); ++i) {
      VariantTiming& one = timing.variants[i];
      if (!one.wrong.empty() || (drops && is_far_behind(one, timing))) continue;
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

// That of the call's tensors which rounds the most.
DType type_of(const SlotSpy::Seen& seen) {
  const auto u = [](DType type) { return examples::tolerance::rounding_to(type).u; };
  DType type = DType::f32;
  for (const Tensor* tensor : seen.tensors) {
    if (tensor->defined() && u(tensor->dtype()) > u(type)) type = tensor->dtype();
  }
  return type;
}

}  // namespace

HiddenPlugins::HiddenPlugins(const KernelSlot* shown) {
  for (const cli::Plugin& plugin : cli::loaded_plugins()) {
    for (const cli::Plugin::Registered& one : plugin.registered) {
      const KernelSlot* slot = cli::find_slot(one.slot);
      for (const VariantBase* v = slot->variants(); v && slot != shown && !one.is_new_slot; v = v->next) {
        if (v->name == one.variant && v->device == one.device)
          variants_.emplace_back(const_cast<VariantBase*>(v), v->device);
      }
    }
  }
  for (const auto& hidden : variants_) hidden.first->device = static_cast<Device>(2);
}

HiddenPlugins::~HiddenPlugins() {
  for (const auto& [variant, device] : variants_) variant->device = device;
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

std::vector<CaseTiming> time_kernels(const examples::TimedCase& kernel, DType type, Device device,
                                     const TimingOptions& options) {
  std::vector<std::vector<Output>> references;
  run_case(kernel, DType::f64, type, Device::cpu,
           [&](const SlotSpy::Seen& seen) { references.push_back(outputs_of(seen)); });
  std::vector<CaseTiming> timings;
  run_case(kernel, type, type, device, [&](const SlotSpy::Seen& seen) {
    CaseTiming& timing = timings.emplace_back(described(kernel, seen, type));
    verify(seen, references[timings.size() - 1], timing);
    CacheFlush flush(device);
    measure(seen, device, options, &flush, timing);
  });
  return timings;
}

CaseTiming time_call(const SlotSpy::Seen& seen, const TimingOptions& options) {
  CaseTiming timing{.what = seen.sizes, .slot = seen.slot.name(), .type = type_of(seen)};
  const Snapshot before(seen.tensors);
  const VariantBase& chosen = seen.again();
  timing.chosen = chosen.name;
  timing.device = chosen.device;
  const std::string_view layout = chosen.layout ? chosen.layout : "";
  const bool all = options.only.empty();
  std::vector<std::pair<std::string, std::vector<Output>>> made;
  cli::with_each_variant(seen.slot, chosen.device, [&](const VariantBase& v) {
    if (all ? layout != (v.layout ? v.layout : "") : std::ranges::count(options.only, v.name) == 0) return;
    before.restore();
    made.emplace_back(v.name, outputs_of(seen));
  });
  const auto failures = all ? failures_of(seen.slot, chosen.device, timing.type) : examples::RowFailures();
  // TF32 has the 10 bits of f16's mantissa.
  const DType rounded = options.tf32 && timing.type == DType::f32 ? DType::f16 : timing.type;
  for (const auto& [variant, outputs] : made) note(variant, outputs, made.back().second, rounded, failures, timing);
  if (made.size() > 1) measure(seen, chosen.device, options, nullptr, timing);
  before.restore();
  seen.again();
  return timing;
}

const VariantTiming* fastest(const CaseTiming& timing) {
  const VariantTiming* best = nullptr;
  for (const VariantTiming& one : timing.variants) {
    if (one.wrong.empty() && (!best || median(one.warm) < median(best->warm))) best = &one;
  }
  return best;
}

Json slower_choices(const std::vector<CaseTiming>& timings, std::vector<std::string>& sentences) {
  Json all = Json::array();
  for (const CaseTiming& timing : timings) {
    const VariantTiming* best = fastest(timing);
    for (const VariantTiming& one : timing.variants) {
      if (one.variant != timing.chosen || !one.wrong.empty()) continue;
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
    if (!a.wrong.empty() || !b.wrong.empty()) return b.wrong.empty();
    return median(a.warm) > median(b.warm);
  });
  rows.json = Json::array();
  for (const VariantTiming& one : ladder) {
    const double warm = median(one.warm), flops = timing.flops / warm, bytes = timing.bytes / warm;
    const bool wrong = !one.wrong.empty();
    const auto timed = [&](double value) { return wrong ? Json() : Json(value); };
    const auto computed = [&](double value) { return timing.flops > 0 ? timed(value) : Json(); };
    const double low = wrong ? NAN : fastest(one.warm), high = wrong ? NAN : slowest(one.warm);
    rows.add({{"", timing.slot, "kernel"},
              {"", timing.what, "sizes"},
              {"", name(timing.type), "type"},
              {"variant", one.variant},
              {"", one.variant + (one.variant == timing.chosen ? " *" : ""), "variant"},
              {"relative_error", one.error},
              {"", std::isfinite(one.error) ? fmt::format("{:.1e}", one.error) : "not finite", "error"},
              {"wrong", wrong},
              {"warm_seconds", timed(warm), "warm us", "{:.1f}", 1e6},
              {"warm_seconds_range", finite_or_null(std::vector{low, high})},
              {"", wrong ? "" : fmt::format("{:.1f} .. {:.1f}", low * 1e6, high * 1e6), "range us"},
              {"cold_seconds", timed(median(one.cold)), "cold us", "{:.1f}", 1e6},
              {"rounds", one.warm.size()},
              {"flops_per_second", timed(flops)},
              {"", computed(flops), "GFLOP/s", "{:.1f}", 1e-9},
              {"share_of_peak_flops", timed(flops / peaks.flops)},
              {"", computed(flops / peaks.flops), "of peak", "{:.1f} %", 100},
              {"bytes_per_second", timed(bytes), "GB/s", "{:.1f}", 1e-9},
              {"share_of_peak_bytes", timed(bytes / peaks.bytes), "of peak", "{:.1f} %", 100},
              {"", wrong ? fmt::format("WRONG: {}; not timed", one.wrong) : "", "remark"}});
  }
  if (ladder.empty()) rows.table.lines.push_back({timing.slot, timing.what, name(timing.type), "none for this type"});
  return {{"slot", timing.slot},   {"sizes", timing.what},    {"type", hs::name(timing.type)}, {"flops", timing.flops},
          {"bytes", timing.bytes}, {"chosen", timing.chosen}, {"variants", rows.json}};
}

}  // namespace hs::bench::measure
