#include "kernels/examples/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/cpu_features.h"
#include "engine/non_copyable.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"

namespace hs::examples {
namespace {

using FailureHandler = std::function<void(const std::string& line)>;
FailureHandler& failure_handler() {
  static FailureHandler handler = [](const std::string& line) { fail(ExitCode::internal, "{}", line); };
  return handler;  // exists before the first static object that sets it
}
void on_failure(const std::string& line) { failure_handler()(line); }

bool has_16_bits(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

Tensor absolute_values(const Tensor& x) {
  Numbers values = to_numbers(x);
  for (double& value : values) value = std::fabs(value);
  return cast(Tensor::from(values, x.shape()), x.dtype());
}

std::vector<bool> places_of(const Tensor& tensor, bool (*is_one)(double)) {
  std::vector<bool> places;
  for (const double value : to_numbers(tensor)) places.push_back(is_one(value));
  return places;
}
bool is_nan(double value) { return std::isnan(value); }
bool is_not_finite(double value) { return !std::isfinite(value); }

// A copy of x on the run's device.
Tensor placed(const Tensor& x, const RowRun& how) {
  const int64_t shift = how.unaligned ? 1 : 0;
  Tensor copy = Tensor::empty({x.size() + shift}, x.dtype(), how.device).slice(shift, x.shape());
  copy.copy_from(x);
  return copy;
}

// Does something when a scope ends.
struct Afterwards : NonCopyable {
  explicit Afterwards(std::function<void()> to_do) : run(std::move(to_do)) {}
  ~Afterwards() { run(); }
  const std::function<void()> run;
};

// Found once: tests look at them before and after every run.
const std::vector<KernelSlot*>& all_slots() {
  static const std::vector<KernelSlot*> slots = kernel_slots();
  return slots;
}

// How often each variant was called so far, in the order of all_slots() and their lists.
std::vector<uint64_t> calls_now() {
  std::vector<uint64_t> calls;
  for (const KernelSlot* slot : all_slots()) {
    for (const VariantBase* v = slot->variants(); v; v = v->next) calls.push_back(v->calls);
  }
  return calls;
}

// Calls body(slot, variant) for each variant that was called since.
template <class Body>
void for_each_called(const std::vector<uint64_t>& before, const Body& body) {
  auto count = before.begin();
  for (KernelSlot* slot : all_slots()) {
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->calls != *count++) body(slot, v);
    }
  }
}

std::map<const VariantBase*, std::set<DType>> reached;
std::vector<uint64_t> calls_before;  // those of the variant that for_each_variant() looks at

const Candidate* candidate = nullptr;
int candidate_runs = 0;
bool is_candidates_turn = false;

[[nodiscard]] Afterwards set_turn(bool is_candidates) {
  const bool before = std::exchange(is_candidates_turn, is_candidates);
  return Afterwards([before] { is_candidates_turn = before; });
}

// The largest error_growth of what ran for it.
double error_growth() {
  if (is_candidates_turn) return candidate->error_growth;
  double growth = 1;
  if (calls_before.empty()) return growth;
  for_each_called(calls_before, [&](KernelSlot*, const VariantBase* v) { growth = std::max(growth, v->error_growth); });
  return growth;
}

Tensor gradient_of(const Tensor& y, RowRun how) {
  how.missing = {};
  const OpCase row{.name = "dy", .shapes = {y.shape()}, .run = nullptr};
  const Tensor dy = inputs_of(row, how)[0];
  if (how.zeros == 0) return dy;
  Numbers values = to_numbers(dy);
  RandomSequence draws({.seed = input_seed(), .layer = 11});
  for (double& value : values) value = to_unit_float(draws.next()) < how.zeros ? 0 : value;
  return cast(Tensor::from(values, dy.shape()), dy.dtype());
}

// Calls run() with a variant forced, whose Error is a failed check; returns whether it ran to its end.
bool runs_forced(const std::string& description, const std::function<void(const std::string&)>& run) {
  try {
    run(description);
    return true;
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(description)) throw;  // a failed check's own
    if (error.kind() != ErrorKind::forced_variant) on_failure(description + ": " + error.what());
    return false;
  }
}

void run_candidate(const OpCase& row, RowRun how, const std::string& what,
                   const std::function<void(const std::string&)>& body) {
  if (candidate->device != how.device) return;
  if (!why_unavailable(how.device).empty()) how.device = Device::cpu;  // the slots are those of the CPU's run
  const auto calls_it = [](const KernelSlot* slot) { return slot->name() == candidate->slot; };
  if (std::ranges::none_of(slots_of(row, how), calls_it)) return;
  const Afterwards end = set_turn(true);
  candidate_runs += runs_forced(fmt::format("{} with {}={}", what, candidate->slot, candidate->variant), body);
}

constexpr double kink_step = 0x1p-19;  // several times what sums in f32 are off

// Whether a sum of what ran is off by more than that: near 0 it may have another sign, and integers, of which f16 has
// all up to 2048, are rounded on the way to it.
bool rounds_sums() { return error_growth() * tolerance::u32 > kink_step; }

// Whether a gradient jumps when inputs move by that.
bool is_near_kink(const OpCase& row, const RowRun& exact, const std::vector<Numbers>& values) {
  for (uint32_t n = 0; n < 3; ++n) {  // each sees half of the ties
    RandomSequence signs({.seed = n, .layer = 12});
    Inputs moved = inputs_of(row, exact);
    for (Tensor& input : moved) {
      for (int64_t i = 0; input.defined() && i < input.size(); ++i) {
        input.mutable_data<double>()[i] *= signs.next() % 2 == 0 ? 1 - kink_step : 1 + kink_step;
      }
    }
    const auto there = as_numbers(run_row(row, moved, exact));
    for (size_t i = 1; i < there.size(); ++i) {
      if (!compare(there[i], values[i], {1e-4, 1e-4, 0}).passed) return true;
    }
  }
  return false;
}

// Whether at least `count` different values occur.
bool has_values(const Numbers& numbers, size_t count) {
  if (numbers.size() < count) return false;
  std::set<double> seen;
  for (auto number = numbers.begin(); number != numbers.end() && seen.size() < count; ++number) seen.insert(*number);
  return seen.size() >= count;
}

// Whether a norm of errors says something: of many values, without a few that outweigh the others, and not so small
// that the type's smallest number decides.
bool is_averaging(DType stored, const Numbers& numbers) {
  const size_t many = stored == DType::f32 ? 8 : 64;
  if (!has_values(numbers, many)) return false;
  double square = 0, fourth = 0;
  for (const double number : numbers) square += number * number, fourth += std::pow(number, 4);
  // As many values of one size have this ratio: the gradient of a loss of one sample may have one large one.
  if (square * square < static_cast<double>(many) * fourth) return false;
  const double root_mean_square = std::sqrt(square / static_cast<double>(numbers.size()));
  const tolerance::Rounding rounding = tolerance::rounding_to(stored);
  return rounding.frobenius * root_mean_square >= 2 * rounding.half_smallest;
}

// `how` with every combination of frozen and missing inputs, `how` itself first.
std::vector<RowRun> combinations(const OpCase& row, const RowRun& how) {
  std::vector<RowRun> ways = {how};
  for (size_t k = 0; k < row.shapes.size(); ++k) {
    const bool is_optional = std::ranges::find(row.optional, k) != row.optional.end();
    for (size_t i = 0, count = ways.size(); i < count; ++i) {
      RowRun frozen = ways[i], missing = ways[i];
      frozen.frozen.insert(k);
      missing.missing.insert(k);
      if (row.differentiable) ways.push_back(frozen);
      if (is_optional) ways.push_back(missing);
    }
  }
  return ways;
}

double weighted_output(const OpCase& row, const Inputs& inputs) {
  const NoGrad no_grad;
  const Numbers y = to_numbers(row.run(inputs));
  double total = 0;
  for (size_t i = 0; i < y.size(); ++i) total += output_weight(i) * y[i];
  return total;
}

// dL along `direction` of input k, by central differences: (L(x + h d) - L(x - h d)) / 2h.
double difference(const OpCase& row, const Inputs& inputs, size_t k, const Numbers& direction) {
  const double h = 6e-6;  // balances rounding, about 2e-11 |L|, against the third derivative (reliability of f64)
  const Numbers x = to_numbers(inputs[k]);
  const auto at = [&](double step) {
    Numbers moved = x;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
    Inputs changed = inputs;
    changed[k] = Tensor::from(moved, inputs[k].shape());
    return weighted_output(row, changed);
  };
  return (at(h) - at(-h)) / (2 * h);
}

// The whole gradient of a small input, four random +-1 directions of a large one.
void check_gradient(const OpCase& row, const Inputs& inputs, size_t k, const Numbers& analytic) {
  const size_t size = analytic.size();
  Numbers measured, from_backward;
  const bool whole = size <= 64;
  for (size_t n = 0; n < (whole ? size : 4); ++n) {
    Numbers direction(size);
    double along = 0;
    for (size_t i = 0; i < size; ++i) {
      const uint32_t draw = random_bits({6, RandomPurpose::init, static_cast<uint32_t>(n), 0, 0}, i);
      direction[i] = whole ? (i == n ? 1 : 0) : (draw & 1 ? 1 : -1);
      along += direction[i] * analytic[i];
    }
    measured.push_back(difference(row, inputs, k, direction));
    from_backward.push_back(along);
  }
  const Comparison result = compare(from_backward, measured, tolerance::gradient_check);
  if (!result.passed) on_failure(fmt::format("{}, gradient of input {}: {}", row.name, k, result.summary));
}

// Checks what a NaN or an infinity at this element of input k makes of the output, as check_nan() says.
void check_reaches(const OpCase& row, const RowRun& forward, size_t k, int64_t place, float value) {
  const auto is_one = std::isnan(value) ? is_nan : is_not_finite;
  Inputs inputs = inputs_of(row, forward);
  inputs[k].mutable_data<float>()[place] = value;
  Inputs exact;
  for (const Tensor& input : inputs) exact.push_back(cast(input, DType::f64));
  const bool has_places = k < row.nan_in_place;
  const std::vector<bool> expected =
      has_places ? places_of(run_row(row, exact, reference_run(forward))[0], is_one) : std::vector<bool>();
  for_each_variant(row, forward, [&](const std::string& description) {
    const std::vector<bool> got = places_of(run_row(row, inputs, forward)[0], is_one);
    const auto count = std::ranges::count(got, true);
    const bool spreads = error_growth() > 1 && std::ranges::equal(got, expected, std::greater_equal<>());
    const bool is_in_place = !has_places || got == expected || spreads;
    if (is_in_place && (!row.nan || count > 0)) return;
    on_failure(fmt::format(
        "{}, {} at element {} of input {}: {} of {} results are {}, expected {}", description,
        std::isnan(value) ? "NaN" : "infinity", place, k, count, got.size(), std::isnan(value) ? "NaN" : "not finite",
        is_in_place ? "at least one" : fmt::format("those {} that use it", std::ranges::count(expected, true))));
  });
}

}  // namespace

void set_failure_handler(FailureHandler handler) { failure_handler() = std::move(handler); }

bool is_ruled_out(const std::string& variant) {
  const CpuFeatures& cpu = cpu_features();
  return (variant == "amx" && !cpu.amx_bf16) || (variant == "avx512_bf16" && !cpu.avx512_bf16) ||
         (variant == "avx512_fp16" && !cpu.avx512_fp16) || (variant == "neon_bf16" && !cpu.neon_bf16) ||
         (variant == "neon_fp16" && !cpu.neon_fp16);
}

Inputs inputs_of(const OpCase& row, const RowRun& how) {
  Inputs inputs = make_inputs(row, DType::f32, how.integers);
  for (Tensor& input : inputs) {
    input = cast(cast(input, how.numbers), DType::f32);
    if (how.absolute) input = absolute_values(input);
    if (how.dtype == DType::f64) input = cast(input, DType::f64);
  }
  for (const size_t k : how.missing) inputs[k] = Tensor();
  return inputs;
}

void set_candidate(const Candidate* judged) {
  candidate = judged;
  candidate_runs = 0;
}
int runs_of_candidate() { return candidate_runs; }

const std::vector<KernelSlot*>& slots_of(const OpCase& row, const RowRun& how) {
  static std::map<std::tuple<std::string, Device, DType, DType>, std::vector<KernelSlot*>> known;
  const std::tuple key{row.name, how.device, how.dtype, how.autocast};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const std::vector<uint64_t> before = calls_now();
  run_row(row, how);
  std::vector<KernelSlot*> slots;
  for_each_called(before, [&](KernelSlot* slot, const VariantBase* variant) {
    if (variant->device == how.device && (slots.empty() || slots.back() != slot)) slots.push_back(slot);
  });
  return known[key] = slots;
}

RowRun run_on(Device device, DType dtype) { return {.device = device, .dtype = dtype, .numbers = dtype}; }

RowRun timed_run(const TimedCase& timed, Device device, DType dtype) {
  RowRun how = run_on(device, dtype);
  how.forward_only = timed.leaves == 0;
  how.zeros = timed.zeros;
  if (timed.autocast && has_16_bits(dtype)) how.autocast = std::exchange(how.dtype, DType::f32);
  const auto inputs = static_cast<size_t>(std::ranges::count_if(timed.shapes, is_given));
  for (size_t k = 0; k + timed.leaves < inputs; ++k) how.frozen.insert(k);
  return how;
}

RowRun reference_run(const RowRun& how) {
  RowRun exact = run_on(Device::cpu, DType::f64);
  exact.numbers = how.numbers, exact.integers = how.integers, exact.absolute = how.absolute;
  exact.frozen = how.frozen, exact.missing = how.missing, exact.zeros = how.zeros;
  return exact;
}

std::vector<Tensor> run_row(const OpCase& row, const Inputs& inputs, const RowRun& how) {
  if (is_candidates_turn) {
    const Afterwards end = set_turn(false);
    return candidate->run(row, inputs, how);
  }
  const Afterwards end([before = test_device()] { set_test_device(before); });
  set_test_device(how.device);
  const AmbientScope scope;
  ambient().autocast = how.autocast;
  const bool cast_unaligned = how.unaligned && has_16_bits(how.dtype);
  const bool differentiate = row.differentiable && !how.forward_only && !cast_unaligned;
  Inputs leaves, operands;
  for (const Tensor& input : inputs) {
    Tensor& leaf = leaves.emplace_back();
    if (!input.defined()) {
      operands.emplace_back();
      continue;
    }
    leaf = placed(input, how);
    const bool wanted = differentiate && !how.frozen.contains(leaves.size() - 1);
    if (wanted) leaf.set_requires_grad(true);
    if (wanted && how.held) {
      const std::vector<float> values(static_cast<size_t>(leaf.size()), *how.held);
      leaf.grad() = Tensor::from(values, leaf.shape()).to(how.device);
    }
    const bool is_parameter = how.autocast != DType::f32 && leaf.shape().rank() == 1 && inputs[0].shape().rank() > 1;
    const Tensor operand = has_16_bits(how.dtype) && !is_parameter ? cast(leaf, how.dtype) : leaf;
    operands.push_back(cast_unaligned ? placed(operand, how) : operand);
  }
  const Tensor y = row.run(operands);
  std::vector<Tensor> results = {y.detach().to(Device::cpu)};
  if (!differentiate) return results;
  if (y.requires_grad()) {
    Tensor dy = gradient_of(y, how);
    if (how.nan_gradient && dy.bytes() > 0) std::memset(dy.mutable_raw_data(), 0xff, dy.bytes());
    backward(y, cast(placed(dy, how), y.dtype()));
  }
  for (const Tensor& leaf : leaves) {
    const bool wanted = leaf.defined() && leaf.requires_grad();
    results.push_back(wanted ? leaf.grad().to(Device::cpu) : Tensor());
  }
  return results;
}

std::vector<Tensor> run_row(const OpCase& row, const RowRun& how) { return run_row(row, inputs_of(row, how), how); }

std::string failure_of(const OpCase& row, const RowRun& how, const std::function<void()>& body) {
  const std::string what = std::string(name(how.device)) + " " + name(how.dtype) + " " + row.name + ": ";
  try {
    body();
  } catch (const std::exception& error) {
    return what + error.what();
  } catch (...) {
    return what + "stopped at the failed check above";  // a REQUIRE, which has already printed its line
  }
  return "";
}

void guard_row(const OpCase& row, const RowRun& how, const std::function<void()>& body) {
  if (const std::string failure = failure_of(row, how, body); !failure.empty()) on_failure(failure);
}

void for_each_variant(const OpCase& row, const RowRun& how, const std::function<void(const std::string&)>& body,
                      const KernelSlot* only) {
  const auto run = [&](const std::string& description) {
    calls_before = calls_now();
    body(description);
    for_each_called(calls_before, [&](KernelSlot*, const VariantBase* variant) { reached[variant].insert(how.dtype); });
  };
  std::string what = std::string(name(how.device)) + " " + name(how.dtype) + " " + row.name;
  for (const size_t k : how.frozen) what += ", no gradient of input " + std::to_string(k);
  for (const size_t k : how.missing) what += ", input " + std::to_string(k) + " undefined";
  RowRun whole = how;
  whole.frozen = whole.missing = {};
  if (candidate) return run_candidate(row, whole, what, body);
  std::map<const KernelSlot*, std::set<const VariantBase*>> by_default;
  if (!only) {
    run(what + " with the default variants");
    for_each_called(calls_before, [&](KernelSlot* slot, const VariantBase* v) { by_default[slot].insert(v); });
  }
  for (KernelSlot* slot : slots_of(row, whole)) {
    if (only && slot != only) continue;
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      const bool has_run = by_default[slot] == std::set{v};  // for every call of the slot
      if (v->device != how.device || has_run) continue;
      const Afterwards end([slot] { slot->force(nullptr); });
      slot->force(v->name);
      runs_forced(what + " with " + slot->name() + "=" + v->name, run);
    }
  }
}

const std::map<const VariantBase*, std::set<DType>>& reached_variants() { return reached; }

Reference reference_of(const OpCase& row, const RowRun& how) {
  Reference reference;
  RowRun exact = reference_run(how);
  if (row.f64) {
    reference.values = as_numbers(run_row(row, exact));
    reference.is_near_kink = row.kinked && is_near_kink(row, exact, reference.values);
  } else {
    reference.values.push_back(row.reference(as_numbers(inputs_of(row, how))));
  }
  const double u = tolerance::rounding_to(how.dtype).u;
  if (how.dtype == DType::f64) return reference;
  if (row.terms.empty() && (row.roundings.empty() || u == 0)) return reference;
  exact.absolute = true;  // |A| |B| and its like
  for (const Numbers& magnitude : as_numbers(run_row(row, exact))) {
    const size_t i = reference.allowance.size();
    Numbers& allowance = reference.allowance.emplace_back(magnitude);
    Numbers& sums = reference.sums.emplace_back(magnitude);
    for (size_t j = 0; j < magnitude.size(); ++j) {
      const double size = std::fabs(magnitude[j]);
      sums[j] = row.terms.empty() ? 0 : tolerance::sum_allowance(row.terms.at(i), size);
      allowance[j] = sums[j] + (row.roundings.empty() ? 0 : (row.roundings.at(i) - 1) * u * size);
    }
  }
  return reference;
}

void check_close(const OpCase& row, const RowRun& how, const Reference& reference, const std::vector<Tensor>& results,
                 const std::string& description) {
  const size_t wanted = reference.values.size();
  if (results.size() > wanted || (results.size() < wanted && !how.unaligned && !how.forward_only)) {
    return on_failure(fmt::format("{}: {} results, expected {}", description, results.size(), wanted));
  }
  const double growth = error_growth();
  for (size_t i = 0; i < results.size(); ++i) {
    Numbers expected = reference.values[i];
    const std::string which = description + (i == 0 ? ", output: " : fmt::format(", gradient {}: ", i - 1));
    if (!results[i].defined()) {
      if (!how.frozen.contains(i - 1) && !how.missing.contains(i - 1)) on_failure(which + "undefined");
      continue;
    }
    const bool is_mask = results[i].dtype() == DType::u8;
    const bool may_jump = reference.is_near_kink || (row.kinked && rounds_sums());
    if (may_jump && (i > 0 || is_mask)) continue;
    Numbers allowance = reference.allowance.empty() ? Numbers(expected.size()) : reference.allowance.at(i);
    for (size_t j = 0; j < expected.size(); ++j) {
      if (growth > 1 && !reference.sums.empty()) allowance[j] += (growth - 1) * reference.sums.at(i)[j];
      if (i > 0 && how.held) allowance[j] += 2 * tolerance::u32 * std::fabs(expected[j] += *how.held);
    }
    // A loss is always f32; gradients are f32 here, but were rounded to the type on the way.
    const DType stored = i == 0 ? results[0].dtype() : how.dtype;
    const Tolerance f32 = how.dtype == DType::f64 ? tolerance::in_f64 : i == 0 ? row.forward : row.gradient;
    const Tolerance grown = {growth * f32.relative, growth * f32.absolute, growth * f32.frobenius};
    Tolerance allowed = tolerance::rounded_to(stored, grown, is_averaging(stored, expected));
    // Many elements may share an earlier rounding, so that they do not average.
    if (has_16_bits(how.dtype) && !row.roundings.empty()) allowed.frobenius *= row.roundings.at(i);
    CompareOptions options;
    options.allowance = allowance;
    const Comparison result = compare(to_numbers(results[i]), expected, allowed, options);
    const bool may_read_result = i > 0 && has_16_bits(how.dtype) && row.roundings.empty();
    const std::string hint =
        may_read_result ? "; if backward reads a saved result, that has 16 bits: see .roundings" : "";
    if (!result.passed) on_failure(which + result.summary + hint);
  }
}

void check_row(const OpCase& row, const RowRun& how) {
  const Reference reference = reference_of(row, how);
  for_each_variant(row, how, [&](const std::string& description) {
    check_close(row, how, reference, run_row(row, how), description);
  });
}

const RowFailures& row_failures(const KernelSlot& slot, Device device, DType dtype) {
  static std::map<std::tuple<const KernelSlot*, Device, DType>, RowFailures> known;
  const auto [place, is_new] = known.try_emplace({&slot, device, dtype});
  RowFailures& failures = place->second;
  if (!is_new) return failures;
  const AmbientScope as_in_tests{Ambient()};
  const Poisoned poisoned;
  std::string variant;  // that runs
  const Afterwards end([before = failure_handler()] { set_failure_handler(before); });
  set_failure_handler([&](const std::string& line) { failures.try_emplace(variant, line); });
  const RowRun how = run_on(device, dtype);
  for (const OpCase& row : op_table()) {
    if ((device == Device::cuda && !row.cuda) || (dtype != DType::f32 && !row.half)) continue;
    if (std::ranges::count(slots_of(row, how), &slot) == 0) continue;
    const Reference reference = reference_of(row, how);
    const auto check = [&](const std::string& description) {
      variant = description.substr(description.rfind('=') + 1);
      check_close(row, how, reference, run_row(row, how), description);
    };
    for_each_variant(row, how, check, &slot);
  }
  return failures;
}

int check_combinations(const OpCase& row, RowRun how) {
  how.zeros = 0.75;
  int runs = 0;
  std::map<std::set<size_t>, Reference> references;  // by the missing inputs
  for (const RowRun& way : combinations(row, how)) {
    if (way.frozen.empty() && way.missing.empty()) continue;
    RowRun wanted = way;
    wanted.frozen = {};
    const auto place = references.try_emplace(way.missing);
    Reference& reference = place.first->second;
    if (place.second) reference = reference_of(row, wanted);
    for_each_variant(row, way, [&](const std::string& description) {
      ++runs;
      check_close(row, way, reference, run_row(row, way), description);
    });
    if (row.integers && row.f64) check_integers(row, way);
  }
  return runs;
}

void check_integers(const OpCase& row, RowRun how) {
  how.integers = true;
  // Intermediate results are integers up to 1200, which are exact in f16 (up to 2048) but not in bf16 (up to 256).
  if (how.dtype == DType::bf16 && !row.roundings.empty()) return;
  const auto exact = as_numbers(run_row(row, reference_run(how)));
  std::vector<RowRun> ways = {how};
  if (row.differentiable) {
    how.held = 3.0f;
    ways.push_back(how);
    how.autocast = std::exchange(how.dtype, DType::f32);
    if (how.autocast != DType::f32) ways.push_back(how);
  }
  for (const RowRun& way : ways) {
    for_each_variant(row, way, [&](const std::string& description) {
      const auto results = run_row(row, way);
      for (size_t i = 0; i < results.size(); ++i) {
        if (!results[i].defined()) continue;
        const Numbers got = to_numbers(results[i]);
        const auto differs_from = [&](const Numbers& wanted, const Tolerance& allowed = tolerance::exact) {
          on_failure(fmt::format(
              "{}, on integers{}{}, result {}: {}", description, way.held ? ", added to a gradient" : "",
              way.autocast == DType::f32 ? "" : ", under Autocast", i, compare(got, wanted, allowed).summary));
        };
        if (results[i].dtype() == DType::i32) {
          if (got != exact.at(i)) differs_from(exact[i]);
          continue;
        }
        Numbers once = rounded_to(i == 0 ? results[0].dtype() : how.numbers, exact.at(i)), plain = exact[i];
        for (Numbers* wanted : {&once, &plain}) {
          for (double& value : *wanted) value += i == 0 ? 0 : way.held.value_or(0);
        }
        if (error_growth() > 1) {  // within a small part of the step from one integer to the next
          if (i > 0 && row.kinked) continue;
          if (rounds_sums() && !row.roundings.empty()) continue;
          const double u = tolerance::rounding_to(way.autocast == DType::f32 ? way.numbers : way.autocast).u;
          const Tolerance nearly{2 * u, 0.05, 0};
          if (!compare(got, plain, nearly).passed) differs_from(plain, nearly);
          continue;
        }
        // Under Autocast gradients of parameters are f32 sums, and gradients of activations have 16 bits.
        const bool is_plain = i > 0 && way.autocast != DType::f32 && got == plain;
        if (got != once && !is_plain) differs_from(once);
      }
    });
  }
}

void check_added(const OpCase& row, RowRun how) {
  how.held = 3.0f;
  const Reference reference = reference_of(row, how);
  for_each_variant(row, how, [&](const std::string& description) {
    check_close(row, how, reference, run_row(row, how), description + ", added to a gradient");
  });
}

void check_nan(const OpCase& row, const RowRun& how) {
  RowRun forward = how, backward = how;
  forward.forward_only = backward.nan_gradient = true;
  for (size_t k = 0; k < row.shapes.size(); ++k) {
    const int64_t size = row.shapes[k].size();
    for (const int64_t place : std::set<int64_t>{0, size / 2, size - 1}) {
      if (size == 0) continue;
      check_reaches(row, forward, k, place, std::numeric_limits<float>::quiet_NaN());
      if (k < row.nan_in_place) check_reaches(row, forward, k, place, std::numeric_limits<float>::infinity());
    }
  }
  if (!row.differentiable) return;
  const auto exact = as_numbers(run_row(row, reference_run(how)));
  for_each_variant(row, how, [&](const std::string& description) {
    const auto results = run_row(row, backward);
    for (size_t i = 1; i < results.size(); ++i) {
      // Where all of a gradient is 0, a ReLU has stopped it.
      if (std::ranges::all_of(exact[i], [](double value) { return value == 0; })) continue;
      if (std::ranges::count(places_of(results[i], is_nan), true) > 0) continue;
      on_failure(fmt::format("{}, gradient {}: no NaN, expected some from a gradient of NaN", description, i - 1));
    }
  });
}

void check_threads(const OpCase& row, const RowRun& how) {
  const Afterwards end([before = threads()] { set_threads(before); });
  for_each_variant(row, how, [&](const std::string& description) {
    std::vector<Tensor> one;
    for (const int count : {1, 2, 3, 7}) {
      set_threads(count);
      const auto results = run_row(row, how);
      if (count == 1) one = results;
      for (size_t i = 0; i < results.size(); ++i) {
        if (!one[i].defined() || same_bytes(one[i], results[i])) continue;
        on_failure(fmt::format("{}: result {} has other bits on {} threads", description, i, count));
      }
    }
  });
}

double output_weight(size_t i) {
  return 2 * to_unit_float(random_bits({5, RandomPurpose::init, 77, 0, 0}, i)) - 1 + 0x1p-30;
}

std::vector<Numbers> gradients_in_f64(const OpCase& row, const Inputs& inputs, double factor) {
  Inputs leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.clone());
    leaves.back().set_requires_grad(true);
  }
  const Tensor y = row.run(leaves);
  Numbers dy(static_cast<size_t>(y.size()));
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = factor * output_weight(i);
  backward(y, Tensor::from(dy, y.shape()));
  std::vector<Numbers> result;
  for (const Tensor& leaf : leaves) {
    check(leaf.grad().defined() && leaf.grad().shape() == leaf.shape() && leaf.grad().dtype() == leaf.dtype(),
          "{}: the gradient of input {} is {}, expected {}", row.name, result.size(), leaf.grad(), leaf);
    result.push_back(to_numbers(leaf.grad()));
  }
  return result;
}

void check_gradients(const OpCase& row) {
  const Inputs inputs = make_inputs(row, DType::f64);
  const auto analytic = gradients_in_f64(row, inputs);
  for (size_t k = 0; k < inputs.size(); ++k) check_gradient(row, inputs, k, analytic[k]);
}

void check_definition(const OpCase& row) {
  std::vector<Inputs> all = {make_inputs(row, DType::f64)};
  for (const size_t k : row.optional) {
    all.push_back(all[0]);
    all.back()[k] = Tensor();
  }
  for (const Inputs& inputs : all) {
    const Comparison result =
        compare(to_numbers(row.run(inputs)), row.reference(as_numbers(inputs)), {1e-12, 1e-12, 0});
    if (!result.passed) on_failure(fmt::format("{} in f64, not as it is defined: {}", row.name, result.summary));
  }
}

Numbers rounded_to(DType dtype, const Numbers& numbers) {
  return to_numbers(cast(Tensor::from(numbers, {static_cast<int64_t>(numbers.size())}), dtype));
}

std::vector<Numbers> as_numbers(const std::vector<Tensor>& tensors) {
  std::vector<Numbers> numbers;
  for (const Tensor& tensor : tensors) numbers.push_back(tensor.defined() ? to_numbers(tensor) : Numbers());
  return numbers;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.bytes()) == 0);
}

Poisoned::Poisoned() { set_poison(true); }
Poisoned::~Poisoned() { set_poison(false); }

}  // namespace hs::examples
