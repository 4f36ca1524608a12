#include "bench/judge/judge.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>

#include "bench/cli/clock.h"
#include "bench/cli/forced_kernels.h"
#include "bench/cli/plugins.h"
#include "bench/cli/statistics.h"
#include "bench/judge/wire.h"
#include "engine/check.h"
#include "engine/kernel.h"
#include "engine/parallel.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/examples/checks.h"

namespace hs::bench::judge {
namespace {

using examples::OpCase;
using examples::RowRun;

using Registered = cli::Plugin::Registered;

// A row of the op table, or a drawn one, and how the subject finds it.
struct Place {
  const OpCase* row = nullptr;
  size_t index = 0;
  uint64_t drawn_seed = 0;  // 0: of the table
  int walk = 0;             // of drawn_rows()
  double size = 0;
};

// At most so many, from the first to the last.
template <class T>
std::vector<T> spread(const std::vector<T>& all, size_t most) {
  std::vector<T> some;
  const size_t count = std::min(most, all.size());
  for (size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

// From the smallest to the largest, but some of all sizes first: there may not be time for all.
constexpr size_t spread_first = 6;
std::vector<Place> in_order(const std::vector<Place>& places) {
  std::vector<Place> order = spread(places, spread_first);
  for (const Place& place : places) {
    if (std::ranges::find(order, place.row, &Place::row) == order.end()) order.push_back(place);
  }
  return order;
}

std::vector<DType> types_of(const Place& place, Device device) {
  std::vector<DType> types = {DType::f32};
  if (place.row->half) types.insert(types.end(), {DType::f16, DType::bf16});
  if (place.row->f64 && device == Device::cpu) types.push_back(DType::f64);
  return types;
}

double size_of_row(const OpCase& row) {
  double size = row.flops;
  for (const Shape& shape : row.shapes) size += static_cast<double>(shape.size());
  return size;
}

// Of what a subject draws itself. It must not know the seed that the timed calls' numbers come from.
uint64_t draw_seed(uint64_t seed) { return random_bits({seed, RandomPurpose::synthetic, 44, 0, 0}, 0); }

RowRun on_cpu(RowRun how) {  // this process may lack the device
  how.device = Device::cpu;
  return how;
}

RowRun forward_of(RowRun how) {
  how.forward_only = true;
  return how;
}

double largest_growth(const KernelSlot& slot) {
  double growth = 1;
  for (const VariantBase* v = slot.variants(); v; v = v->next) growth = std::max(growth, v->error_growth);
  return growth;
}

// Results may be as far off as what the variant says of itself, if one of the project's own in its slot says as much,
// or as those of a variant of another slot of the row.
double error_growth(const OpCase& row, const Registered& registered) {
  double growth = 1;
  for (const KernelSlot* slot : examples::slots_of(row, examples::run_on(Device::cpu, DType::f32))) {
    const double own = largest_growth(*slot);
    growth = std::max(growth, slot->name() == registered.slot ? std::min(registered.error_growth, own) : own);
  }
  return growth;
}

// The row's inputs times 2^-130, which makes most of them subnormal: selections and sums of two must not lose them.
void check_denormals(const OpCase& row, const RowRun& how) {
  const examples::Tolerance& allowed = row.forward;
  if (how.dtype != DType::f32 || !row.f64 || allowed.relative + allowed.absolute + allowed.frobenius > 0) return;
  const RowRun forward = forward_of(how);
  examples::Inputs small, exact;
  for (const Tensor& input : examples::inputs_of(row, forward)) {
    examples::Numbers numbers = examples::to_numbers(input);
    for (double& number : numbers) number = static_cast<float>(number * 0x1p-130);
    exact.push_back(Tensor::from(numbers, input.shape()));
    small.push_back(cast(exact.back(), DType::f32));
  }
  const auto wanted = examples::run_row(row, exact, examples::reference_run(forward));
  examples::for_each_variant(row, forward, [&](const std::string&) {
    const auto got = examples::run_row(row, small, forward);
    if (got[0].dtype() != DType::f32) return;
    const examples::Comparison result =
        examples::compare(examples::to_numbers(got[0]), examples::to_numbers(cast(wanted[0], DType::f32)), {});
    if (!result.passed) throw Refusal("denormals", fmt::format("{}: {}", row.name, result.summary));
  });
}

// Inputs may be the same memory, as in add(x, x): copies of it must give the same bits.
void check_aliases(const OpCase& row, const RowRun& how) {
  const RowRun forward = forward_of(how);
  examples::Inputs inputs = examples::inputs_of(row, forward);
  bool has_twins = false;
  for (size_t k = 1; k < inputs.size(); ++k) {
    const auto twin = std::ranges::find(inputs, row.shapes[k], &Tensor::shape);
    if (twin == inputs.begin() + static_cast<std::ptrdiff_t>(k) || !twin->defined() || !inputs[k].defined()) continue;
    inputs[k] = *twin;
    has_twins = true;
  }
  if (!has_twins) return;
  examples::for_each_variant(row, forward, [&](const std::string& description) {
    RowRun shared = forward;
    shared.shared = true;
    if (examples::same_bytes(examples::run_row(row, inputs, shared)[0], examples::run_row(row, inputs, forward)[0]))
      return;
    throw Refusal("aliases", fmt::format("{}: other bits if inputs of one shape are the same tensor", description));
  });
}

std::vector<Registered> variants_named(const KernelSlot& slot, std::string_view name) {
  std::vector<Registered> all;
  for (const VariantBase* v = slot.variants(); v; v = v->next) {
    if (name == v->name) all.push_back({slot.name(), v->name, v->device, false, v->error_growth});
  }
  return all;
}

std::vector<Registered> all_variants_of(const JudgeOptions& options) {
  std::vector<Registered> all;
  if (!options.plugin.empty()) {
    const Examiner subject(options.plugin, options.shown, Examiner::Memory::plain, 1);
    for (const Json& one : subject.variants()) {
      const std::string name = one.at("slot");
      all.push_back({name, one.at("variant"), one.at("cuda").get<bool>() ? Device::cuda : Device::cpu,
                     !cli::find_slot(name), one.at("error_growth")});
    }
    return all;
  }
  const size_t equals = options.variant.find('=');
  const KernelSlot* slot = cli::find_slot(options.variant.substr(0, equals));
  if (!slot || equals == std::string::npos) {
    fail(ExitCode::usage,
         "judge {}: expected a plug-in's file, or SLOT=VARIANT of this program; halfstep-bench info lists them",
         options.variant);
  }
  all = variants_named(*slot, options.variant.substr(equals + 1));
  if (all.empty()) fail(ExitCode::usage, "judge {}: {} has no variant of this name", options.variant, slot->name());
  return all;
}

// Those for the device. A GPU cannot be judged: what runs on it is not confined, and nobody sees what it does.
std::vector<Registered> variants_of(const JudgeOptions& options) {
  const bool is_emulated = ::dlsym(RTLD_DEFAULT, "hs_emulator_memory_counts");  // whatever library has been loaded
  if (options.device == "emulated" && !is_emulated) {
    fail(ExitCode::usage,
         "judge --device emulated: this build has no emulator; one with -D HALFSTEP_CUDA=EMULATED has");
  }
  std::vector<Registered> all = all_variants_of(options);
  const Device wanted = options.device == "cpu" ? Device::cpu : Device::cuda;
  if (options.device != "all") std::erase_if(all, [&](const Registered& one) { return one.device != wanted; });
  if (all.empty()) {
    fail(ExitCode::usage, "judge --device {}: {} has no variant for it", options.device,
         options.plugin.empty() ? options.variant : "the plug-in");
  }
  // Of a name on both devices the one for the CPU is judged, where a GPU would be needed for the other.
  if (!is_emulated && options.device == "all" && std::ranges::count(all, Device::cpu, &Registered::device) > 0) {
    std::erase_if(all, [](const Registered& one) { return one.device == Device::cuda; });
  }
  if (!is_emulated && std::ranges::count(all, Device::cuda, &Registered::device) > 0) {
    fail(ExitCode::device,
         "judge: a GPU cannot be isolated as a process can, so a build with -D HALFSTEP_CUDA=EMULATED judges variants "
         "for CUDA");
  }
  return all;
}

// Judges one variant: a check after the other, each on the smallest rows first, so that the first failure is a small
// one.
class Session {
  using Body = std::function<void(const OpCase& row, const RowRun& how)>;
  static constexpr auto guarded = Examiner::Memory::guarded;
  static constexpr uint64_t kinks = 2;  // as many tries more has a row with kinks, or at a small size
  const JudgeOptions& options_;
  const Registered registered_;
  const uint64_t seed_;
  std::unique_ptr<Examiner> subject_;
  examples::Candidate candidate_;
  const Place* place_ = nullptr;  // that is being checked
  std::string check_;             // its name
  int threads_ = threads();
  std::set<std::string> taken_;  // rows, and how they ran
  std::set<DType> types_;        // in which it has run
  Verdict verdict_{.slot = registered_.slot, .variant = registered_.variant, .device = registered_.device};

  void start(Examiner::Memory memory) {
    subject_ = std::make_unique<Examiner>(options_.plugin, options_.shown, memory, threads(), registered_.device);
    subject_->ask({{"do", "subject"}, {"slot", registered_.slot}, {"variant", registered_.variant}});
  }

  // Those of rows_of() that the device has.
  void add_places(std::vector<Place>& places, uint64_t seed, int walk) const {
    const std::vector<OpCase>& rows = rows_of(seed, walk);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (registered_.device == Device::cuda && !rows[i].cuda) continue;
      places.push_back({&rows[i], i, seed, walk, size_of_row(rows[i])});
    }
  }

  // `walks`: through small sizes.
  std::vector<Place> rows_drawn(int count, bool walks) const {
    std::vector<Place> places;
    for (int n = 1; n <= count; ++n) add_places(places, seed_ + static_cast<uint64_t>(n), walks ? n : 0);
    return places;
  }

  // Those that call the slot and that the variant takes in some type, from the smallest to the largest; at most so
  // many, evenly spread.
  std::vector<Place> chosen(std::vector<Place> places, size_t most) {
    check_ = "isolation";
    const RowRun plain = examples::run_on(Device::cpu, DType::f32);  // this process may lack the device
    std::erase_if(places, [&](const Place& place) { return !reaches(*place.row, plain, registered_.slot); });
    std::ranges::stable_sort(places, {}, &Place::size);
    const double most_seconds = registered_.device == Device::cpu ? 1e9 : options_.quick ? 3 : 12;  // of slow emulation
    const auto start = Clock::now();
    std::erase_if(places, [&](const Place& place) { return seconds_since(start) > most_seconds || !is_taken(place); });
    return spread(places, most);
  }

  bool is_taken(const Place& place) {
    for (const DType dtype : types_of(place, registered_.device)) {
      const RowRun how = examples::run_on(registered_.device, dtype);
      try {
        ask_row(place, examples::inputs_of(*place.row, how), how, false);
        return true;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::forced_variant) throw;
      }
    }
    return false;
  }

  // A run but for what its tensors hold, on which it must not depend whether a variant takes it.
  static std::string call_of(const Place& place, RowRun how, bool before) {
    how.numbers = DType::f32;
    how.integers = how.absolute = how.nan_gradient = how.sparse = false;
    if (how.held) how.held = 0;
    return fmt::format("{} {} {} {} {}", place.index, place.drawn_seed, place.walk, before, to_json(how).dump());
  }

  Json ask_row(const Place& place, const examples::Inputs& inputs, const RowRun& how, bool before) {
    const auto named = [&](const std::string& text) {
      return fmt::format("{} {}: {}", name(how.dtype), place.row->name, text);
    };
    const Json question = {{"do", "row"},
                           {"row", place.index},
                           {"drawn", place.drawn_seed},
                           {"walk", place.walk},
                           {"how", to_json(how)},
                           {"inputs", pack(inputs, subject_->memory().first(row_bytes))},
                           {"seed", examples::input_seed()},
                           {"threads", threads_},
                           {"watch", check_ == "rows" || check_ == "drawn"},
                           {"before", before}};
    Json answer;
    try {
      answer = subject_->ask(question);
    } catch (const Refusal& refusal) {
      if (refusal.check != "emulator") throw;
      throw Refusal(refusal.check, named(refusal.what()));
    }
    const std::string call = call_of(place, how, before);
    if (answer.value("unsupported", false)) {
      if (taken_.contains(call)) throw Refusal(check_, named("it took this call before, and not with other numbers"));
      throw Error(ExitCode::usage, "not supported", ErrorKind::forced_variant);
    }
    if (answer.contains("error")) throw Refusal(check_, answer.at("error").get<std::string>());
    for (const Json& finding : answer.at("findings")) {
      throw Refusal(finding.at("check").get<std::string>(), named(finding.at("text").get<std::string>()));
    }
    taken_.insert({call, call_of(place, forward_of(how), before)});
    return answer;
  }

  // A kernel may have put other tensors into its call: every check relies on what their shapes and types should be.
  void check_form(const std::vector<Tensor>& results, const std::vector<Tensor>& own) const {
    for (size_t i = 0; i < std::max(results.size(), own.size()); ++i) {
      const auto form = [i](const std::vector<Tensor>& all) {
        if (i >= all.size() || !all[i].defined()) return std::string("nothing");
        return fmt::format("{} {}", name(all[i].dtype()), all[i].shape());
      };
      if (form(results) == form(own)) continue;
      throw Refusal(check_,
                    fmt::format("{}: result {} is {}, expected {}", place_->row->name, i, form(results), form(own)));
    }
  }

  std::vector<Tensor> run(const examples::Inputs& inputs, const RowRun& how) {
    // What begins one element into a block that ends at a guard page may be aligned again.
    const Json answer = ask_row(*place_, inputs, how, how.unaligned);
    std::vector<Tensor> results = unpack(answer.at("results"), subject_->memory().first(row_bytes));
    check_form(results, examples::run_row(*place_->row, inputs, on_cpu(how)));
    types_.insert(how.dtype);
    if (check_ == "rows" && how.device == Device::cpu) ask_row(*place_, inputs, how, true);  // guard pages before each
    return results;
  }

  // Whether the body passes for the row. If it does not, throws Refusal, but for a row whose gradients jump where two
  // sums are equal up to rounding: other numbers may be clear of that. A kernel that is wrong at a size is so with any
  // numbers, while a norm over three of them that are nearly equal multiplies every rounding.
  bool passes(const std::string& check, const Body& body, const RowRun& how, bool is_last) {
    try {
      body(*place_->row, how);
      return true;
    } catch (const Refusal& refusal) {
      if (is_last || !(place_->row->kinked || check == "sizes") || refusal.check != check) throw;
      return false;
    } catch (const Error& error) {
      throw Refusal(check, fmt::format("{} {}: {}", name(how.dtype), place_->row->name, error.what()));
    }
  }

  // Failures of the checks of rows are refusals by the check that runs now.
  void run_check(const std::string& check, const std::vector<Place>& places, const Body& body) {
    check_ = check;
    Check passed{check};
    // The inputs of the table's rows are those that its tolerances are known to be right for.
    const uint64_t seed = places.empty() || places[0].drawn_seed == 0 ? examples::default_input_seed : seed_;
    const auto start = Clock::now();
    const double most_seconds = options_.quick ? 1 : registered_.device == Device::cpu ? 5 : 14;
    size_t done = 0;
    for (const Place& place : in_order(places)) {
      // A slow kernel must not choose that only the smallest rows are looked at.
      if (seconds_since(start) > most_seconds && (done >= spread_first || registered_.device != Device::cpu)) break;
      ++done;
      for (const DType dtype : types_of(place, registered_.device)) {
        place_ = &place;
        candidate_.error_growth = error_growth(*place.row, registered_);
        const int before = examples::runs_of_candidate();
        examples::set_input_seed(seed);
        for (uint64_t other = 1; !passes(check, body, examples::run_on(registered_.device, dtype), other > kinks);
             ++other) {
          examples::set_input_seed(seed_ + 1'000'000 * other);
        }
        passed.runs += examples::runs_of_candidate() - before;
      }
    }
    if (passed.runs > 0) verdict_.checks.push_back(passed);
  }

  // With an infinity among the inputs, and with all of them 128 times as large, the output is finite where that of the
  // f64 run is, and nowhere else; another algorithm may spread an infinity, where no row says that none does.
  void check_infinities(const OpCase& row, const RowRun& how) {
    if (how.dtype == DType::f64 || !row.f64 || !row.nan) return;
    const RowRun forward = forward_of(how);
    const examples::Inputs inputs = examples::inputs_of(row, forward);
    const auto check = [&](const examples::Inputs& changed, const std::string& what, bool may_spread) {
      examples::Inputs exact;
      for (const Tensor& input : changed) exact.push_back(cast(input, DType::f64));
      const auto wanted = examples::to_numbers(examples::run_row(row, exact, examples::reference_run(forward))[0]);
      examples::for_each_variant(row, forward, [&](const std::string& description) {
        const auto got = examples::to_numbers(examples::run_row(row, changed, forward)[0]);
        for (size_t i = 0; i < wanted.size(); ++i) {
          const bool is_finite = std::isfinite(wanted[i]);
          if (std::fabs(wanted[i]) > 6e4 && is_finite) continue;  // where f16 ends
          if (std::isfinite(got[i]) == is_finite || (is_finite && may_spread)) continue;
          throw Refusal("infinities",
                        fmt::format("{}, {}: element {} is {}, expected {}", description, what, i, got[i], wanted[i]));
        }
      });
    };
    for (size_t k = 0; k < std::min(inputs.size(), std::max<size_t>(row.nan_in_place, 1)); ++k) {
      if (!inputs[k].defined() || inputs[k].size() == 0) continue;
      const bool is_in_place = k < row.nan_in_place;
      for (const float value : {INFINITY, -INFINITY}) {
        if (value < 0 && !is_in_place) continue;  // -inf * 0 is NaN in one formula and 0 in another
        examples::Inputs changed = inputs;
        changed[k] = inputs[k].clone();
        changed[k].mutable_data<float>()[inputs[k].size() / 2] = value;
        check(changed, fmt::format("{} at element {} of input {}", value, inputs[k].size() / 2, k),
              candidate_.error_growth > 1 || !is_in_place);
      }
    }
    // What is rounded on the way may end there in f16, and in f64 it does not.
    if (how.dtype == DType::f16 && !row.roundings.empty() && row.roundings.front() > 1) return;
    examples::Inputs large;
    for (const Tensor& input : inputs) {
      large.push_back(input.defined() ? input.clone() : Tensor());
      for (int64_t i = 0; i < large.back().size(); ++i) large.back().mutable_data<float>()[i] *= 128;
    }
    check(large, "inputs times 128", candidate_.error_growth > 1);
  }

  void check_threads(const OpCase& row, const RowRun& how) {
    examples::for_each_variant(row, how, [&](const std::string& description) {
      std::vector<Tensor> one;
      for (const int count : {1, 2, 3, 7}) {
        threads_ = count;
        const auto results = examples::run_row(row, how);
        if (count == 1) one = results;
        for (size_t i = 0; i < one.size(); ++i) {
          if (!one[i].defined() || examples::same_bytes(one[i], results.at(i))) continue;
          throw Refusal("threads", fmt::format("{}: result {} has other bits on {} threads", description, i, count));
        }
      }
      threads_ = threads();
    });
  }

  void check_rows() {
    using namespace examples;
    const auto close = [](const OpCase& row, const RowRun& how) {
      const Reference reference = reference_of(row, how);
      for_each_variant(row, how, [&](const std::string& description) {
        const auto results = run_row(row, how);
        if (how.dtype != DType::f64) return check_close(row, how, reference, results, description);
        for (size_t i = 0; i < results.size(); ++i) {  // against the project's own in f64: its rounding alone
          const Comparison result = compare(to_numbers(results[i]), reference.values.at(i), {1e-10, 1e-10, 0});
          if (!result.passed) throw Refusal("rows", fmt::format("{}, result {}: {}", description, i, result.summary));
        }
      });
    };
    const bool quick = options_.quick;
    std::vector<Place> table;
    add_places(table, 0, 0);
    std::vector<Place> all = chosen(table, quick ? 10 : 1000);
    std::vector<Place> drawn = chosen(rows_drawn(quick ? 8 : 30, false), quick ? 10 : 40);
    if (all.empty() && drawn.empty()) drawn = chosen(rows_drawn(walks, true), quick ? 10 : 40);
    if (all.empty()) all = drawn;  // for a kind of shape that the table does not have
    if (all.empty()) throw Refusal("rows", "it takes no call of the op table's rows, nor of those that are drawn");
    start(guarded);  // which knows nothing of the calls so far
    const std::vector<Place> some = spread(all, quick ? 6 : 24);
    run_check("rows", all, close);
    run_check("drawn", drawn, close);
    run_check("integers", some, [](const OpCase& row, const RowRun& how) {
      if (how.dtype != DType::f64 && row.integers && row.f64) check_integers(row, how);
    });
    run_check("nan", some, [](const OpCase& row, const RowRun& how) {
      // Nothing says whether cuBLASLt's ReLU, which this op's product has there, keeps a NaN.
      if (how.device == Device::cuda && row.name.starts_with("feed_forward")) return;
      if (how.dtype != DType::f64 && (row.nan || row.nan_in_place > 0)) check_nan(row, how);
    });
    run_check("infinities", some, [this](const OpCase& row, const RowRun& how) { check_infinities(row, how); });
    run_check("unaligned", drawn, [&](const OpCase& row, RowRun how) {
      how.unaligned = true;
      close(row, how);
    });
    run_check("omitted", some, [](const OpCase& row, const RowRun& how) {
      if (how.dtype != DType::f64 && row.flops <= 1e5) check_combinations(row, how);
    });
    run_check("aliases", some, check_aliases);
    if (registered_.device != Device::cpu) return;
    std::vector<Place> walked = rows_drawn(walks, true);  // of the ops whose drawn rows reach the slot
    std::erase_if(walked, [&](const Place& place) {
      return std::ranges::find(drawn, place.index, &Place::index) == drawn.end();
    });
    run_check("sizes", walked, [&](const OpCase& row, const RowRun& how) {
      if (how.dtype == *types_.begin()) close(row, how);
    });
    run_check("denormals", all, check_denormals);
    run_check("threads", all, [this](const OpCase& row, const RowRun& how) { check_threads(row, how); });
  }

  // What goes wrong in large tensors alone: a row at a timed size, between guard pages, on one thread and on seven. Two
  // elements of its first input are large and subnormal, then NaN and infinite, and what becomes of them is compared
  // with what the project's variants make of the same. Gradients come from what the variant kept for them. Returns
  // whether the variant takes it.
  bool check_large(size_t index, const examples::TimedCase& timed, DType type) {
    const int64_t most = options_.quick ? 8 : 64;  // which fits into the memory, and whose loops do not take long
    const auto batch = static_cast<uint64_t>(std::min(options_.batch, most));
    const Place place{&rows_of(batch, at_timed_sizes).at(index), index, batch, at_timed_sizes};
    place_ = &place;
    RowRun how = examples::run_on(Device::cpu, timed.autocast ? DType::f32 : type);
    how.numbers = type;
    if (timed.autocast) how.autocast = type;
    for (size_t k = 0; k < timed.shapes.size(); ++k) {
      if (timed.shapes[k] == Shape{0}) how.missing.insert(k);
    }
    RandomSequence draw({.seed = seed_, .layer = 13});
    try {
      for (const auto& [one, other] : {std::pair{1e4f, 1e-40f}, {NAN, INFINITY}}) {
        examples::Inputs inputs = examples::inputs_of(*place.row, how);
        for (const float value : {one, other}) {
          inputs[0].mutable_data<float>()[draw.next() % inputs[0].size()] = value;
        }
        compare_large(inputs, how, type);
      }
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::forced_variant) throw;
      return false;
    }
  }

  void compare_large(const examples::Inputs& inputs, const RowRun& how, DType type) {
    std::vector<std::vector<Tensor>> runs, own;
    for (const int count : {1, 7, 7}) {
      threads_ = count;
      runs.push_back(run(inputs, how));
    }
    threads_ = threads();
    cli::with_each_variant(*cli::find_slot(registered_.slot), Device::cpu,
                           [&](const VariantBase&) { own.push_back(examples::run_row(*place_->row, inputs, how)); });
    for (size_t i = 0; i < runs[0].size(); ++i) {
      if (!runs[0][i].defined()) continue;
      const auto same = [&](const auto& results) { return examples::same_bytes(results[i], runs[0][i]); };
      const std::string what =
          std::ranges::all_of(runs, same)
              ? difference(*place_->row, i, type, examples::to_numbers(runs[0][i]),
                           mapped(own, [i](const auto& all) { return examples::to_numbers(all.at(i)); }))
              : "other bits on 7 threads";
      if (!what.empty())
        throw Refusal(check_, fmt::format("{} {}, result {}: {}", name(type), place_->row->name, i, what));
    }
  }

  // "" if the result is as near to those of the project's variants as a timed call's has to be. Where they agree that
  // the output is not finite, it must not be; and if all that they give is finite, all of this must be.
  static std::string difference(const OpCase& row, size_t result, DType type, const examples::Numbers& got,
                                const std::vector<examples::Numbers>& own) {
    const auto is_finite = [](double number) { return std::isfinite(number); };
    const bool all_finite = std::ranges::all_of(
        own, [&](const examples::Numbers& numbers) { return std::ranges::all_of(numbers, is_finite); });
    double off = 0, spread = 0, square = 0;
    for (size_t j = 0; j < got.size(); ++j) {
      const auto count = std::ranges::count_if(own, [&](const auto& numbers) { return is_finite(numbers[j]); });
      if (is_finite(got[j]) ? result == 0 && count == 0 : all_finite) {
        return fmt::format("element {} is {}, expected {}", j, got[j], own[0][j]);
      }
      if (count < std::ssize(own) || !is_finite(got[j])) continue;
      double apart = 0;
      for (const examples::Numbers& other : own) apart = std::max(apart, std::fabs(other[j] - own[0][j]));
      off += std::pow(got[j] - own[0][j], 2), spread += apart * apart, square += own[0][j] * own[0][j];
    }
    const examples::Tolerance& forward = row.forward;
    // Which of two nearly equal numbers a selection takes depends on rounding.
    const bool selects = result > 0 && (row.kinked || row.fill == examples::Fill::spaced);
    const double least = selects ? (size_of(type) == 2 ? 0.5 : 0.02) : 8 * measure::largest_error(type);
    double most = std::max(8 * std::sqrt(spread / square), least);
    if (result == 0 && forward.relative + forward.absolute + forward.frobenius == 0) most = 0;
    if (off == 0 || std::sqrt(off / square) <= most) return "";
    return fmt::format("off by {:.2g} of its norm, at most {:.2g} is accepted", std::sqrt(off / square), most);
  }

  // On the variant's own threads, in a process that has not run a row.
  void check_timed() {
    KernelSlot* slot = cli::find_slot(registered_.slot);
    const TimingPlan plan{options_.batch, options_.quick ? 7 : 15, options_.quick ? 0.7 : 2.0, options_.seed};
    std::vector<std::pair<size_t, DType>> all;
    for (size_t i = 0; i < plan.cases.size(); ++i) {
      if (std::ranges::find(plan.cases[i].slots, slot) == plan.cases[i].slots.end()) continue;
      for (const DType type : types_) {
        if (type != DType::f64) all.emplace_back(i, type);  // that is for checks alone
      }
    }
    if (all.empty()) verdict_.untimed = fmt::format("no row of {} says at which size", registered_.slot);
    const auto wanted = spread(all, options_.quick ? 2 : 9);
    check_ = "large";
    Check large{check_};
    for (const auto& [index, type] : wanted) large.runs += check_large(index, plan.cases[index], type);
    if (large.runs > 0) verdict_.checks.push_back(large);
    check_ = "timed";
    start(Examiner::Memory::plain);
    subject_->check_threads();  // those of its static objects may have ended before the first calls have
    Examiner beside("", "", Examiner::Memory::plain, threads());
    for (const auto& [index, type] : wanted) {
      const auto calls = measure::calls_of(plan.cases[index], Device::cpu);
      const auto call = std::ranges::find(calls, registered_.slot, &measure::SlotCall::slot);
      const std::string against = options_.against.empty()
                                      ? variant_beside(plan.cases[index], *slot, type, registered_.variant)
                                      : options_.against;
      beside.ask({{"do", "subject"}, {"slot", registered_.slot}, {"variant", against}});
      TimedResult result = time_case(*subject_, beside, *slot, index, type, plan);
      if (result.seconds.empty()) {
        verdict_.untimed = result.what;
        continue;
      }
      result.what = fmt::format("{} {}", call->what, name(type));
      result.against = against;
      verdict_.timed.push_back(std::move(result));
    }
    if (!verdict_.timed.empty()) {
      verdict_.checks.push_back({"timed", static_cast<int64_t>(verdict_.timed.size())});
    }
  }

  // A slot that only the plug-in knows: its rows run in its process, and only their failure comes back.
  void check_own_rows() {
    const Json answer = subject_->ask({{"do", "own rows"}});
    if (answer.contains("error")) throw Refusal("rows", answer.at("error").get<std::string>());
    const std::string failure = answer.at("failure");
    if (!failure.empty()) throw Refusal("rows", failure);
    const auto rows = answer.at("rows").get<int64_t>();
    if (rows == 0)
      throw Refusal("rows", "the plug-in has no rows for its new slot, so that nobody knows what is right");
    verdict_.checks.push_back({"own rows", rows});
  }

 public:
  Session(const JudgeOptions& options, const Registered& registered)
      : options_(options), registered_(registered), seed_(draw_seed(options.seed)) {}

  Verdict judge() {
    const auto start_time = Clock::now();
    candidate_ = {registered_.slot, registered_.variant, registered_.device, registered_.error_growth,
                  [this](const auto&, const auto& in, const auto& how) { return run(in, how); }};
    examples::set_input_seed(seed_);
    examples::set_failure_handler([this](const std::string& line) { throw Refusal(check_, line); });
    examples::set_candidate(&candidate_);
    try {
      start(guarded);
      registered_.is_new_slot ? check_own_rows() : check_rows();
      if (!registered_.is_new_slot && registered_.device == Device::cpu) check_timed();
    } catch (const Refusal& refusal) {
      verdict_.refused_by = refusal.check;
      verdict_.reason = refusal.what();
    } catch (const Json::exception& error) {
      verdict_.refused_by = "isolation";
      verdict_.reason = fmt::format("its answer makes no sense: {}", error.what());
    }
    examples::set_candidate(nullptr);
    verdict_.seconds = seconds_since(start_time);
    return std::move(verdict_);
  }
};

}  // namespace

std::string Verdict::text() const {
  if (!refused_by.empty()) return fmt::format("refused by {}: {}", refused_by, reason);
  if (device == Device::cuda) return "right on the emulator, which says nothing about speed";
  if (timed.empty()) return untimed.empty() ? "right" : "right; not timed: " + untimed;
  double ratio = 0, low = 0, high = 0;  // logarithms
  for (const TimedResult& one : timed) {
    const Interval interval = ratio_interval(one.seconds_against, one.seconds);
    ratio += std::log(median(one.seconds_against) / median(one.seconds));
    low += std::log(interval.low);
    high += std::log(interval.high);
  }
  const auto mean = [&](double logarithms) { return std::exp(logarithms / static_cast<double>(timed.size())); };
  const bool is_one =
      std::ranges::all_of(timed, [&](const TimedResult& one) { return one.against == timed[0].against; });
  return fmt::format("right and {:.2f} times as fast as {} ({:.2f} to {:.2f})", mean(ratio),
                     is_one ? timed[0].against : "the variants that run now", mean(low), mean(high));
}

std::vector<Verdict> judge(const JudgeOptions& options) {
  std::vector<Verdict> verdicts;
  try {
    for (const Registered& registered : variants_of(options)) {
      const KernelSlot* slot = cli::find_slot(registered.slot);
      if (slot && !options.against.empty() && variants_named(*slot, options.against).empty()) {
        fail(ExitCode::usage, "--against {}: {} has no variant of this name; halfstep-bench info lists them",
             options.against, slot->name());
      }
      verdicts.push_back(Session(options, registered).judge());
    }
  } catch (const Refusal& refusal) {  // while the plug-in was loaded
    verdicts.push_back({.slot = options.plugin, .refused_by = refusal.check, .reason = refusal.what()});
  }
  return verdicts;
}

}  // namespace hs::bench::judge
