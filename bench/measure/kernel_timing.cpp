#include "bench/measure/kernel_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/cli/clock.h"
#include "bench/cli/forced_kernels.h"
#include "bench/measure/observers/kernel_trace.h"
#include "bench/measure/statistics.h"
#include "engine/autocast.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "engine/slots.h"
#include "kernels/cpu/simd.h"
#include "kernels/gemm/gemm.h"

namespace hs::bench::measure {
namespace {

using Tensors = KernelCase::Tensors;

template <class Work>
double seconds_of(Device device, const Work& work) {
  runtime(device).synchronize();
  const Clock::time_point start = Clock::now();
  work();
  runtime(device).synchronize();
  return seconds_since(start);
}

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

Tensor cast_to(const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  Tensor y = Tensor::empty(x.shape(), type, x.device());
  cast_forward({x, y});
  return y;
}

// Uniform in [-1, 1), `zeros` of them 0, the same for every type up to its rounding.
Tensor random_numbers(const Shape& shape, uint32_t which, double zeros) {
  Tensor x = Tensor::empty(shape, DType::f32);
  float* values = x.mutable_data<float>();
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const bool zero = to_unit_float(random_bits({2, RandomPurpose::synthetic, which, 0, 0}, at)) < zeros;
    values[i] = zero ? 0 : 2 * to_unit_float(random_bits({1, RandomPurpose::synthetic, which, 0, 0}, at)) - 1;
  }
  return x;
}

Tensors outputs_of(const KernelCase& kernel, DType type, Device device) {
  Tensors outputs;
  for (size_t i = 0; i < kernel.outputs.size(); ++i) {
    const bool f32 = i < kernel.is_sum.size() && kernel.is_sum[i] && type != DType::f64;
    outputs.push_back(Tensor::empty(kernel.outputs[i], f32 ? DType::f32 : type, device));
  }
  return outputs;
}

std::vector<double> numbers_of(const Tensor& tensor) {
  return cast_to(tensor.to(Device::cpu), DType::f64).to_vector<double>();
}

double error_of(const Tensors& got, const Tensors& reference) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const std::vector<double> a = numbers_of(got[i]), b = reference[i].to_vector<double>();
    for (size_t j = 0; j < a.size(); ++j) {
      difference += (a[j] - b[j]) * (a[j] - b[j]);
      norm += b[j] * b[j];
    }
  }
  return std::sqrt(difference / norm);
}

// The variant that a call takes, or "" if none supports it: the forced one, where one is forced.
std::string variant_of_call(const KernelCase& kernel, Tensors& in, Tensors& out) {
  try {
    const KernelTrace trace;
    kernel.call(in, out);
    for (const KernelCall& call : trace.calls()) {
      if (call.slot == kernel.slot->name()) return call.variant;
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::other) throw;
  }
  return "";
}

// Multiply-adds that wait for nothing: as many sums as hide their latency.
double peak_flops_of_cpu() {
  constexpr int64_t steps = 1 << 20, pieces = 64, sums = 12;
  std::vector<float> sink(static_cast<size_t>(pieces));
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double seconds = seconds_of(Device::cpu, [&] {
      parallel(pieces, [&](int64_t piece, int) {
        const simd::Vec factor = simd::broadcast(0.5f + 0.001f * static_cast<float>(piece));
        simd::Vec sum[sums];
        for (int i = 0; i < sums; ++i) sum[i] = simd::broadcast(static_cast<float>(i));  // all of them different
        for (int64_t i = 0; i < steps; ++i) {
          for (auto& s : sum) s = simd::fma(s, factor, factor);
        }
        simd::Vec total{};
        for (const auto& s : sum) total += s;
        sink[static_cast<size_t>(piece)] = total[0];
      });
    });
    best = std::max(best, 2.0 * simd::width * sums * static_cast<double>(steps * pieces) / seconds);
  }
  return std::isfinite(sink[0]) ? best : 0;
}

double peak_flops_of_gemm(Device device) {
  constexpr int64_t side = 4096;
  const Tensor a = Tensor::zeros({side, side}, DType::f16, device), b = a.clone();
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double seconds = seconds_of(device, [&] { static_cast<void>(matmul(a, b)); });
    best = std::max(best, 2.0 * side * side * side / seconds);
  }
  return best;
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
  } else {
    peaks.flops = peak_flops_of_gemm(device);
    peaks.flops_of = "the f16 product of two 4096 x 4096 matrices";
  }
  const Tensor from = Tensor::zeros({flush_bytes / 4}, DType::f32, device);
  Tensor to = from.empty_like();
  for (int round = 0; round < 5; ++round) {
    const double seconds = seconds_of(device, [&] { cast_forward({from, to}); });  // f32 to f32: a copy, on all threads
    peaks.bytes = std::max(peaks.bytes, 2.0 * flush_bytes / seconds);
  }
  return peaks;
}

CaseTiming time_kernel(const KernelCase& kernel, DType type, Device device, int64_t rounds, double seconds) {
  CaseTiming timing{.what = kernel.what, .slot = kernel.slot->name(), .type = type, .flops = kernel.flops};
  const AmbientScope scope;
  Tensors in, exact_in;
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const double zeros = i + 1 == kernel.inputs.size() ? kernel.zeros : 0;
    const Tensor rounded = cast_to(random_numbers(kernel.inputs[i], static_cast<uint32_t>(i), zeros), type);
    in.push_back(rounded.to(device));
    exact_in.push_back(cast_to(rounded, DType::f64));
  }
  Tensors out = outputs_of(kernel, type, device), reference = outputs_of(kernel, DType::f64, Device::cpu);
  kernel.call(exact_in, reference);
  for (const Tensors* tensors : {&in, &out}) {
    for (const Tensor& tensor : *tensors) timing.bytes += static_cast<double>(tensor.size() * size_of(tensor.dtype()));
  }
  timing.chosen = variant_of_call(kernel, in, out);
  const auto assignment = [&](const std::string& variant) { return timing.slot + "=" + variant; };

  for (const VariantBase* variant = kernel.slot->variants(); variant; variant = variant->next) {
    if (variant->device != device) continue;
    const cli::ForcedKernels forced({assignment(variant->name)});
    for (Tensor& tensor : out) {
      runtime(device).fill(tensor.mutable_raw_data(), 0xff,
                           static_cast<size_t>(tensor.size() * size_of(tensor.dtype())));
    }
    if (variant_of_call(kernel, in, out) != variant->name) continue;
    VariantTiming& one = timing.variants.emplace_back();
    one.variant = variant->name;
    one.error = error_of(out, reference);
    one.wrong = !(one.error <= largest_error(type));
  }

  CacheFlush flush(device);
  const Clock::time_point start = Clock::now();
  std::vector<int64_t> calls(timing.variants.size(), 0);  // that make up 2 ms
  for (int64_t round = 0; round < rounds && (round < 3 || seconds_since(start) < seconds); ++round) {
    for (size_t i = 0; i < timing.variants.size(); ++i) {
      VariantTiming& one = timing.variants[i];
      if (one.wrong) continue;
      const cli::ForcedKernels forced({assignment(one.variant)});
      const auto call = [&] { kernel.call(in, out); };
      flush();
      one.cold.push_back(seconds_of(device, call));
      if (calls[i] == 0) calls[i] = std::clamp<int64_t>(static_cast<int64_t>(2e-3 / seconds_of(device, call)), 1, 1000);
      const double warm = seconds_of(device, [&] {
        for (int64_t n = 0; n < calls[i]; ++n) call();
      });
      one.warm.push_back(warm / static_cast<double>(calls[i]));
    }
  }
  return timing;
}

namespace {

double slowest(const std::vector<double>& times) { return *std::ranges::max_element(times); }
double fastest(const std::vector<double>& times) { return *std::ranges::min_element(times); }

}  // namespace

Json to_json(const CaseTiming& timing, const Peaks& peaks) {
  Json json = {{"slot", timing.slot},      {"sizes", timing.what},  {"type", hs::name(timing.type)},
               {"flops", timing.flops},    {"bytes", timing.bytes}, {"chosen", timing.chosen},
               {"variants", Json::array()}};
  for (const VariantTiming& one : timing.variants) {
    Json row = {{"variant", one.variant}, {"relative_error", finite_or_null(one.error)}, {"wrong", one.wrong}};
    if (!one.wrong) {
      const double warm = median(one.warm);
      row["warm_seconds"] = warm;
      row["warm_seconds_range"] = {fastest(one.warm), slowest(one.warm)};
      row["cold_seconds"] = median(one.cold);
      row["rounds"] = one.warm.size();
      row["flops_per_second"] = timing.flops / warm;
      row["bytes_per_second"] = timing.bytes / warm;
      row["share_of_peak_flops"] = finite_or_null(timing.flops / warm / peaks.flops);
      row["share_of_peak_bytes"] = finite_or_null(timing.bytes / warm / peaks.bytes);
    }
    json["variants"].push_back(std::move(row));
  }
  return json;
}

report::Table to_table(const std::vector<CaseTiming>& timings, const Peaks& peaks) {
  report::Table table = {.heads = {"kernel", "sizes", "type", "variant", "error", "warm us", "range us", "cold us",
                                   "GFLOP/s", "of peak", "GB/s", "of peak", "remark"},
                         .lines = {},
                         .left = 4};
  for (const CaseTiming& timing : timings) {
    std::vector<const VariantTiming*> ladder;
    for (const VariantTiming& one : timing.variants) ladder.push_back(&one);
    std::ranges::stable_sort(ladder, [](const VariantTiming* a, const VariantTiming* b) {
      if (a->wrong || b->wrong) return a->wrong && !b->wrong;
      return median(a->warm) > median(b->warm);
    });
    const auto add = [&](const std::string& variant, std::vector<std::string> cells) {
      auto& line =
          table.lines.emplace_back(std::vector<std::string>{timing.slot, timing.what, name(timing.type), variant});
      line.insert(line.end(), cells.begin(), cells.end());
      line.resize(table.heads.size());
    };
    if (ladder.empty()) add("none for this type", {});
    for (const VariantTiming* one : ladder) {
      const std::string variant = one->variant + (one->variant == timing.chosen ? " *" : "");
      const std::string error = std::isfinite(one->error) ? fmt::format("{:.1e}", one->error) : "not finite";
      if (one->wrong) {
        add(variant, {error, "", "", "", "", "", "", "",
                      fmt::format("WRONG: the largest accepted is {:.1e}; not timed", largest_error(timing.type))});
        continue;
      }
      const double warm = median(one->warm), flops = timing.flops / warm, bytes = timing.bytes / warm;
      const bool computes = timing.flops > 0;
      add(variant, {error, fmt::format("{:.1f}", warm * 1e6),
                    fmt::format("{:.1f} .. {:.1f}", fastest(one->warm) * 1e6, slowest(one->warm) * 1e6),
                    fmt::format("{:.1f}", median(one->cold) * 1e6), computes ? fmt::format("{:.1f}", flops * 1e-9) : "",
                    computes ? fmt::format("{:.1f} %", flops / peaks.flops * 100) : "",
                    fmt::format("{:.1f}", bytes * 1e-9), fmt::format("{:.1f} %", bytes / peaks.bytes * 100)});
    }
  }
  return report::without_empty_columns(table);
}

}  // namespace hs::bench::measure
