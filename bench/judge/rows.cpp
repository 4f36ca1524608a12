#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <set>

#include "bench/cli/clock.h"
#include "bench/judge/parts.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/storage.h"
#include "kernels/examples/checks.h"
#include "kernels/examples/guard_pages.h"

namespace hs::bench::judge {
namespace {

using examples::GuardPages;
using examples::OpCase;
using examples::RowRun;
using Rows = std::vector<const OpCase*>;

constexpr int more_calls = 3;  // of each call, with the same inputs

std::vector<DType> types_of(const OpCase& row) {
  std::vector<DType> types = {DType::f32};
  if (row.half) types.insert(types.end(), {DType::f16, DType::bf16});
  if (row.f64) types.push_back(DType::f64);
  return types;
}

double size_of_row(const OpCase* row) {
  double size = row->flops;
  for (const Shape& shape : row->shapes) size += static_cast<double>(shape.size());
  return size;
}

// Or may reach: what a row of a plug-in throws is said when its turn has come.
bool reaches(const OpCase& row, const std::string& slot) {
  try {
    const auto& slots = examples::slots_of(row, examples::run_on(Device::cpu, DType::f32));
    return std::ranges::count(slots, slot, &KernelSlot::name) > 0;
  } catch (const Error&) {
    return true;
  }
}

// Judges the rows: a check after the other, each on the smallest rows first, so that the first failure is a small one.
class RowChecks {
  using Body = std::function<void(const OpCase& row, const RowRun& how)>;
  static constexpr uint64_t kinks = 2;  // as many tries more has a row with kinks
  Judged& judged_;
  const JudgeOptions& options_;
  const cli::Plugin::Registered& registered_ = judged_.registered;
  examples::Candidate candidate_{registered_.slot, registered_.variant, Device::cpu, registered_.error_growth,
                                 [this](const auto&, const auto& in, const auto& how) { return run(in, how); }};
  std::deque<std::vector<OpCase>> drawn_;  // rows stay where they are
  const OpCase* row_ = nullptr;            // that is being checked
  std::string check_ = "rows";             // its name
  int threads_ = threads();
  std::set<std::string> taken_;  // rows, and how they ran
  std::set<DType> types_;        // in which it has run

  // Results may be as far off as those of the project's variants of the row's slots, in this one as far as the variant
  // says of itself.
  double error_growth(const OpCase& row) const {
    double growth = 1;
    for (const KernelSlot* slot : examples::slots_of(row, examples::run_on(Device::cpu, DType::f32))) {
      for (const VariantBase* v = slot->variants(); v; v = v->next) {
        if (judged_.is_plugins(v)) continue;
        const bool is_it = slot == &judged_.slot;
        growth = std::max(growth, is_it ? std::min(v->error_growth, registered_.error_growth) : v->error_growth);
      }
    }
    return growth;
  }

  // Those that call the slot and that the variant takes in some type, from the smallest to the largest; at most so
  // many, evenly spread.
  Rows chosen(Rows rows, size_t most) {
    std::erase_if(rows, [&](const OpCase* row) { return !reaches(*row, registered_.slot) || !is_taken(*row); });
    std::ranges::stable_sort(rows, {}, size_of_row);
    return spread(rows, most);
  }

  Rows rows_drawn(int count) {
    Rows rows;
    for (int n = 1; n <= count; ++n) {
      drawn_.push_back(examples::drawn_rows(options_.seed + static_cast<uint64_t>(n)));
      for (const OpCase& row : drawn_.back()) rows.push_back(&row);
    }
    return rows;
  }

  bool is_taken(const OpCase& row) {
    if (registered_.is_new_slot) return true;
    row_ = &row;
    for (const DType dtype : types_of(row)) {
      const RowRun how = examples::run_on(Device::cpu, dtype);
      try {
        run_at(GuardPages::Side::behind, examples::inputs_of(row, how), how);
        return true;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::forced_variant) throw;
      }
    }
    return false;
  }

  // A run but for what its tensors hold, on which it must not depend whether a variant takes it.
  std::string call_of(const RowRun& how) const {
    return fmt::format("{} {} {} {} {} {} {}", static_cast<const void*>(row_), name(how.dtype), name(how.autocast),
                       how.forward_only, how.unaligned, fmt::join(how.frozen, "+"), fmt::join(how.missing, "+"));
  }

  // Each call of the slot is made several times from the same memory.
  void watch(const std::function<void()>& work) const {
    const KernelSpy spy = [&](const SpiedCall& call) -> const VariantBase& {
      if (&call.slot != &judged_.slot) return call.again();
      const Snapshot before(call.tensors);
      const VariantBase& ran = call.again();
      const auto once = before.written();
      for (int n = 0; n < more_calls; ++n) {
        before.restore();
        call.again();
        if (before.written() == once) continue;
        throw Refusal("repeat", fmt::format("call {} with the same inputs gives other bits than the first", n + 2));
      }
      return ran;
    };
    const SpyScope scope(&spy);
    work();
  }

  std::vector<Tensor> run_at(GuardPages::Side side, const examples::Inputs& inputs, RowRun how) {
    const std::string what = fmt::format("{} {}", name(how.dtype), row_->name), call = call_of(how);
    GuardPages::set_side(side);
    GuardPages::set_description(what);
    set_threads(threads_);
    std::vector<Tensor> results;
    try {
      const auto work = [&] { results = examples::run_row(*row_, inputs, how); };
      judged_.run(check_, what, [&] { watch(work); });
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::forced_variant || !taken_.contains(call)) throw;
      throw Refusal(check_, what + ": it took this call before, and not with other numbers");
    }
    how.forward_only = true;
    taken_.insert({call, call_of(how)});
    return results;
  }

  std::vector<Tensor> run(const examples::Inputs& inputs, const RowRun& how) {
    // What begins one element into a block that ends at a guard page may be aligned again.
    const auto side = how.unaligned ? GuardPages::Side::before : GuardPages::Side::behind;
    std::vector<Tensor> results = run_at(side, inputs, how);
    if (check_ == "rows") run_at(GuardPages::Side::before, inputs, how);
    types_.insert(how.dtype);
    return results;
  }

  // Whether the body passes for the row. If it does not, throws Refusal, but for a row whose gradients jump where two
  // sums are equal up to rounding: other numbers may be clear of that.
  bool passes(const Body& body, const RowRun& how, bool is_last) {
    try {
      body(*row_, how);
      return true;
    } catch (const Refusal& refusal) {
      if (is_last || !row_->kinked || refusal.check != check_) throw;
      return false;
    }
  }

  // Failures of the checks of rows are refusals by the check that runs now.
  void run_check(const std::string& check, const Rows& rows, const Body& body, bool is_drawn = false) {
    check_ = check;
    int64_t runs = 0;
    // The inputs of the table's rows are those that its tolerances are known to be right for.
    const uint64_t seed = is_drawn ? options_.seed : examples::default_input_seed;
    const auto start = Clock::now();
    for (const OpCase* row : rows) {
      if (seconds_since(start) > (options_.quick ? 1 : 5)) break;
      for (const DType dtype : types_of(*row)) {
        row_ = row;
        candidate_.error_growth = error_growth(*row);
        const int before = examples::runs_of_candidate();
        examples::set_input_seed(seed);
        for (uint64_t n = 1; !passes(body, examples::run_on(Device::cpu, dtype), n > kinks); ++n) {
          examples::set_input_seed(options_.seed + 1'000'000 * n);
        }
        runs += examples::runs_of_candidate() - before;
      }
    }
    judged_.passed(check, runs);
  }

  void check_close(const OpCase& row, const RowRun& how) const {
    using namespace examples;
    const Reference reference = reference_of(row, how);
    for_each_variant(row, how, [&](const std::string& description) {
      const auto results = run_row(row, how);
      if (how.dtype != DType::f64) return examples::check_close(row, how, reference, results, description);
      for (size_t i = 0; i < results.size(); ++i) {  // against the project's own in f64: its rounding alone
        const Comparison result = compare(to_numbers(results[i]), reference.values.at(i), {1e-10, 1e-10, 0});
        if (!result.passed) throw Refusal(check_, fmt::format("{}, result {}: {}", description, i, result.summary));
      }
    });
    // Of an op that the plug-in brings along, only the rows say what is right.
    if (!registered_.is_new_slot || how.dtype != DType::f32 || !row.f64) return;
    if (row.reference) check_definition(row);
    if (row.differentiable) check_gradients(row);
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
          throw Refusal(check_, fmt::format("{}: result {} has other bits on {} threads", description, i, count));
        }
      }
      threads_ = threads();
    });
  }

 public:
  RowChecks(Judged& judged, const JudgeOptions& options) : judged_(judged), options_(options) {
    examples::set_failure_handler([this](const std::string& line) { throw Refusal(check_, line); });
    examples::set_candidate(&candidate_);
  }
  ~RowChecks() { examples::set_candidate(nullptr); }

  std::vector<DType> run_all() {
    const GuardPages guard;
    set_poison(true);
    const bool quick = options_.quick;
    const Body close = [this](const OpCase& row, const RowRun& how) { check_close(row, how); };
    const auto unless_f64 = [](bool wanted, const RowRun& how) { return wanted && how.dtype != DType::f64; };
    Rows table;
    for (const OpCase& row : examples::op_table()) table.push_back(&row);
    Rows all = chosen(table, quick ? 10 : 1000), drawn = chosen(rows_drawn(quick ? 8 : 30), quick ? 10 : 40);
    const bool has_table = !all.empty();
    if (!has_table) all = drawn;  // for a kind of shape that the table does not have
    if (all.empty()) throw Refusal("rows", "it takes no call of the op table's rows, nor of those that are drawn");
    const Rows some = spread(all, quick ? 6 : 24);
    run_check("rows", all, close, !has_table);
    run_check("drawn", drawn, close, true);
    run_check("integers", some, [&](const OpCase& row, const RowRun& how) {
      if (unless_f64(row.integers && row.f64, how)) examples::check_integers(row, how);
    });
    run_check("nan", some, [&](const OpCase& row, const RowRun& how) {
      if (unless_f64(row.nan || row.nan_in_place > 0, how)) examples::check_nan(row, how);
    });
    const auto unaligned = [&](const OpCase& row, RowRun how) {
      how.unaligned = true;
      check_close(row, how);
    };
    run_check("unaligned", drawn, unaligned, true);
    run_check("omitted", some, [&](const OpCase& row, const RowRun& how) {
      if (unless_f64(row.flops <= 1e5, how)) examples::check_combinations(row, how);
    });
    run_check("threads", all, [this](const OpCase& row, const RowRun& how) { check_threads(row, how); });
    return {types_.begin(), types_.end()};
  }
};

}  // namespace

std::vector<DType> check_rows(Judged& judged, const JudgeOptions& options) {
  return RowChecks(judged, options).run_all();
}

}  // namespace hs::bench::judge
