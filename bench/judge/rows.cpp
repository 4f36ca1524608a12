#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "bench/cli/clock.h"
#include "bench/judge/parts.h"
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
// Of timed cases as rows, so that the slowest loops do not take long: the samples, and numbers of all inputs.
constexpr int64_t large_batch = 8, max_numbers = 1 << 20;

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
bool reaches(const OpCase& row, const KernelSlot& slot) {
  try {
    return std::ranges::count(examples::slots_of(row, examples::run_on(Device::cpu, DType::f32)), &slot) > 0;
  } catch (const Error&) {
    return true;
  }
}

// Judges the rows: a check after the other, each on the smallest rows first, so that the first failure is a small one.
class RowChecks {
  using Body = std::function<void(const OpCase& row, const RowRun& how)>;
  Judged& judged_;
  const JudgeOptions& options_;
  const cli::Plugin::Registered& registered_ = judged_.registered;
  examples::Candidate candidate_{registered_.slot, registered_.variant, Device::cpu, registered_.error_growth,
                                 [this](const auto&, const auto& in, const auto& how) { return run(in, how); }};
  std::deque<std::vector<OpCase>> made_;                // rows that are not in the table; they stay where they are
  std::map<const OpCase*, examples::TimedCase> timed_;  // those of them that are timed cases
  const OpCase* row_ = nullptr;                         // that is being checked
  std::string check_ = "rows";                          // its name
  std::set<DType> types_;                               // in which it has run

  // Results may be as far off as the variant says of itself, and what the row's other slots run of themselves.
  double error_growth(const OpCase& row) const {
    double growth = registered_.error_growth;
    for (const KernelSlot* slot : examples::slots_of(row, examples::run_on(Device::cpu, DType::f32))) {
      for (const VariantBase* v = slot->variants(); v && slot != &judged_.slot; v = v->next) {
        growth = std::max(growth, v->error_growth);
      }
    }
    return growth;
  }

  // Those that call the slot and that the variant takes in some type, from the smallest to the largest; at most so
  // many, evenly spread.
  Rows chosen(Rows rows, size_t most) {
    std::erase_if(rows, [&](const OpCase* row) { return !reaches(*row, judged_.slot) || !is_taken(*row); });
    std::ranges::stable_sort(rows, {}, size_of_row);
    return spread(rows, most);
  }

  Rows rows_drawn(int count) {
    Rows rows;
    for (int n = 1; n <= count; ++n) {
      made_.push_back(examples::drawn_rows(options_.seed + static_cast<uint64_t>(n)));
      for (const OpCase& row : made_.back()) rows.push_back(&row);
    }
    return rows;
  }

  Rows rows_timed() {
    Rows rows;
    for (const examples::TimedCase& timed : timed_cases(judged_.slot, std::min(options_.batch, large_batch))) {
      int64_t numbers = 0;
      for (const Shape& shape : timed.shapes) numbers += shape.size();
      if (numbers > max_numbers) continue;
      made_.push_back({examples::row_of(timed)});
      const OpCase& row = *rows.emplace_back(&made_.back().front());
      timed_[&row] = timed;
    }
    return rows;
  }

  RowRun run_of(const OpCase& row, DType dtype) {
    RowRun how = examples::run_on(Device::cpu, dtype);
    if (!timed_.contains(&row)) return how;
    const RowRun timed = examples::timed_run(timed_.at(&row), Device::cpu, dtype);
    how.frozen = timed.frozen;
    how.forward_only = timed.forward_only || row.kinked;  // rounding moves some gradients of this many
    return how;
  }

  bool is_taken(const OpCase& row) {
    if (registered_.is_new_slot) return true;
    row_ = &row;
    for (const DType dtype : types_of(row)) {
      const RowRun how = run_of(row, dtype);
      try {
        run_at(GuardPages::Side::behind, examples::inputs_of(row, how), how);
        return true;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::forced_variant) throw;
      }
    }
    return false;
  }

  // Each call of the slot is made several times from the same memory.
  void watch(const std::function<void()>& work) const {
    const KernelSpy spy = [&](const SpiedCall& call) -> const VariantBase& {
      if (&call.slot != &judged_.slot) return call.again();
      const measure::Snapshot before(call.tensors);
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

  std::vector<Tensor> run_at(GuardPages::Side side, const examples::Inputs& inputs, const RowRun& how) {
    const std::string what = fmt::format("{} {}", name(how.dtype), row_->name);
    GuardPages::set_side(side);
    GuardPages::set_description(what);
    std::vector<Tensor> results;
    judged_.run(check_, what, [&] { watch([&] { results = examples::run_row(*row_, inputs, how); }); });
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

  // Failures of the checks of rows are refusals by the check that runs now.
  void run_check(const std::string& check, const Rows& rows, const Body& body, bool is_drawn = false) {
    check_ = check;
    int64_t runs = 0;
    // The inputs of the table's rows are those that its tolerances are known to be right for.
    examples::set_input_seed(is_drawn ? options_.seed : examples::default_input_seed);
    const auto start = Clock::now();
    for (const OpCase* row : rows) {
      if (seconds_since(start) > (options_.quick ? 1 : 5)) break;
      row_ = row;
      candidate_.error_growth = error_growth(*row);
      const int before = examples::runs_of_candidate();
      for (const DType dtype : types_of(*row)) body(*row, run_of(*row, dtype));
      runs += examples::runs_of_candidate() - before;
    }
    judged_.passed(check, runs);
  }

  void check_close(const OpCase& row, const RowRun& how) const {
    examples::check_row(row, how);
    // Of an op that the plug-in brings along, only the rows say what is right.
    if (!registered_.is_new_slot || how.dtype != DType::f32 || !row.f64) return;
    if (row.reference) examples::check_definition(row);
    if (row.differentiable) examples::check_gradients(row);
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
      if (row.integers && row.f64 && how.dtype != DType::f64) examples::check_integers(row, how);
    });
    run_check("nan", some, [&](const OpCase& row, const RowRun& how) {
      if ((row.nan || row.nan_in_place > 0) && how.dtype != DType::f64) examples::check_nan(row, how);
    });
    const auto unaligned = [&](const OpCase& row, RowRun how) {
      how.unaligned = true;
      check_close(row, how);
    };
    run_check("unaligned", drawn, unaligned, true);
    run_check("omitted", some, [&](const OpCase& row, const RowRun& how) {
      if (row.flops <= 1e5 && how.dtype != DType::f64) examples::check_combinations(row, how);
    });
    run_check("threads", all, examples::check_threads);
    if (registered_.is_new_slot) return {};
    const auto large = [&](const OpCase& row, const RowRun& how) {
      if (how.dtype == DType::f64 || !types_.contains(how.dtype)) return;
      check_close(row, how);
      examples::check_threads(row, how);
      if (how.dtype == DType::f32) unaligned(row, how);  // of a size that vectors divide, which few draws are
    };
    run_check("large", chosen(rows_timed(), quick ? 2 : 9), large, true);
    return {types_.begin(), types_.end()};
  }
};

}  // namespace

std::vector<DType> check_rows(Judged& judged, const JudgeOptions& options) {
  return RowChecks(judged, options).run_all();
}

}  // namespace hs::bench::judge
