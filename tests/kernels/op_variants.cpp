// Every variant of every slot that a row reaches: against the f64 reference, on integers bit by bit, for any number of
// threads, and with NaN in the input. At the end: no slot and no variant that the table never reached.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "engine/check.h"
#include "engine/cpu_features.h"
#include "engine/kernel.h"
#include "engine/parallel.h"
#include "kernels/elementwise/elementwise.h"
#include "tests/support/checks.h"
#include "tests/support/sanitized.h"

namespace hs::test {
namespace {

void check_drawn(const OpCase& row, const RowRun& how) {
  check_row(row, how);
  if (row.integers && row.f64) check_integers(row, how);
  if (row.nan || row.nan_in_place > 0) check_nan(row, how);
}

}  // namespace

TEST_CASE("a row that throws is one failure, with its name, and ends no other row") {
  const OpCase broken{.name = "broken", .shapes = {{1}}, .run = [](const Inputs&) -> Tensor {
                        fail(ExitCode::internal, "some_slot: no cpu kernel takes (f16(1))");
                      }};
  const RowRun how = run_on(Device::cpu, DType::f16);
  CHECK(failure_of(broken, how, [&] {
          for_each_variant(broken, how, [&](const std::string&) { run_row(broken, how); });
        }) == "cpu f16 broken: some_slot: no cpu kernel takes (f16(1))");
  CHECK(failure_of(broken, how, [] {}) == "");
  CHECK(failure_of(broken, how, [] { throw 1; }) == "cpu f16 broken: stopped at the failed check above");
}

// As the judge has it: the forced simple kernel, and what makes of its results a wrong one's.
TEST_CASE("a candidate takes the place of the variants, and what it gets wrong is a line with its name") {
  if (!is_whole_table()) return;
  const OpCase& row = *std::ranges::find(op_table(), "add (3, 5)", &OpCase::name);
  const RowRun how = run_on(Device::cpu, DType::f32);
  const Reference reference = reference_of(row, how);
  std::vector<std::string> lines;
  int bodies = 0;
  const auto check_row = [&](double spoilt_by) {
    const Candidate candidate{"add_forward", "mine", Device::cpu, 1,
                              [&](const OpCase& its, const Inputs& in, const RowRun& run) {
                                const ForcedVariant forced(add_forward, "simple");
                                std::vector<Tensor> results = run_row(its, in, run);
                                results[0].mutable_data<float>()[2] += static_cast<float>(spoilt_by);
                                return results;
                              }};
    set_candidate(&candidate);
    for_each_variant(row, how, [&](const std::string& what) {
      ++bodies, check_close(row, how, reference, run_row(row, how), what);
    });
    check_integers(row, how);
    check_nan(row, how);
    for_each_variant(op_table().front(), how, [&](const std::string&) { ++bodies; });  // does not call the slot
    CHECK(runs_of_candidate() > bodies);
    set_candidate(nullptr);
  };
  set_failure_handler([&](const std::string& line) { lines.push_back(line); });
  check_row(0);
  CHECK(lines.empty());
  check_row(0.5);
  check_row(NAN);
  report_to_doctest();
  CHECK(bodies == 3);
  REQUIRE(lines.size() == 18);  // a NaN and an infinity at three places of both inputs are not alone in the result
  CHECK(lines[0].starts_with(
      "cpu f32 add (3, 5) with add_forward=mine, output: 1 of 15 elements out of tolerance; worst at 2: got "));
  CHECK(lines[1].starts_with("cpu f32 add (3, 5) with add_forward=mine, on integers, result 0: 1 of 15"));
}

TEST_CASE("the f64 run of every row equals its definition, written as plain loops") {
  for (const OpCase& row : op_table()) {
    if (row.f64 && row.reference) guard_row(row, run_on(Device::cpu, DType::f64), [&] { check_definition(row); });
  }
}

TEST_CASE("every variant is within tolerance of the f64 reference, in every type") {
  const Poisoned poisoned;
  int runs = 0;
  for_each_run(Device::cpu, [&](const OpCase& row, const RowRun& how) {
    const Reference reference = reference_of(row, how);
    for_each_variant(row, how, [&](const std::string& description) {
      ++runs;
      check_close(row, how, reference, run_row(row, how), description);
    });
  });
  CHECK((runs >= 600 || !is_whole_table()));
}

TEST_CASE("gradients that nobody wants and biases that are missing: every combination") {
  const Poisoned poisoned;
  set_threads(1);
  int runs = 0;
  for_each_run(Device::cpu, [&](const OpCase& row, const RowRun& how) {
    if (row.flops <= 1e5) runs += check_combinations(row, how);  // larger rows add nothing to this
  });
  set_threads(0);
  CHECK((runs >= 8000 || !is_whole_table()));
}

TEST_CASE("gradients are added to what the leaves hold") {
  const Poisoned poisoned;
  int rows = 0;
  for (const OpCase& row : op_table()) {
    const RowRun how = run_on(Device::cpu, DType::f32);
    if (!row.differentiable || row.integers) continue;
    guard_row(row, how, [&] { check_added(row, how); });
    ++rows;
  }
  CHECK((rows >= 20 || !is_whole_table()));
}

TEST_CASE("on small integers every variant is exact, bit for bit" * doctest::skip(with_address_sanitizer)) {
  const Poisoned poisoned;
  for_each_run(Device::cpu, [&](const OpCase& row, RowRun how) {
    if (row.integers && row.f64) check_integers(row, how);
  });
}

TEST_CASE("under Autocast an op takes parameters in f32 where its other inputs have 16 bits") {
  for_each_run(Device::cpu, [](const OpCase& row, RowRun how) {
    how.autocast = how.dtype;
    if (how.dtype == DType::bf16 && row.differentiable) run_row(row, how);
  });
}

TEST_CASE("any number of threads gives the same bits" * doctest::skip(with_address_sanitizer)) {
  for_each_run(Device::cpu, [&](const OpCase& row, const RowRun& how) { check_threads(row, how); });
}

TEST_CASE("a NaN in the input reaches the output, and a NaN gradient the gradients" *
          doctest::skip(with_address_sanitizer)) {
  for_each_run(Device::cpu, [&](const OpCase& row, const RowRun& how) {
    if (row.nan || row.nan_in_place > 0) check_nan(row, how);
  });
}

TEST_CASE("rows that are drawn pass the same checks" * doctest::skip(with_address_sanitizer)) {
  if (!is_whole_table()) return;
  const Poisoned poisoned;
  int rows = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    set_input_seed(static_cast<uint64_t>(seed));
    for (const OpCase& row : drawn_rows(static_cast<uint64_t>(seed))) {
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const RowRun how = run_on(Device::cpu, dtype);
        if (dtype == DType::f32 || row.half) guard_row(row, how, [&] { check_drawn(row, how); });
      }
      ++rows;
    }
  }
  set_input_seed(2026);
  CHECK(rows >= 20 * 40);
}

namespace {

std::string list(const std::set<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

TEST_CASE("the table reaches every slot and every variant, on hardware or on emulated units" *
          doctest::skip(with_address_sanitizer)) {
  if (!is_whole_table()) return;
  for_each_run(Device::cpu, [&](const OpCase& row, const RowRun& how) {
    for_each_variant(row, how, [&](const std::string&) { run_row(row, how); });
  });
  constexpr std::string_view suffix = "_emulated";
  std::set<std::string> on_hardware, on_emulated_units, not_at_all;
  for (const KernelSlot* slot : kernel_slots()) {
    std::set<std::string> names;
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      if (v->device != Device::cpu) continue;
      std::string name = v->name;
      names.insert(name);
      if (reached_variants().contains(v)) {
        const bool is_emulated = name.ends_with(suffix);
        if (is_emulated) name.resize(name.size() - suffix.size());
        (is_emulated ? on_emulated_units : on_hardware).insert(name);
        continue;
      }
      INFO("no row of kernels/*/rows.cpp reaches ", std::string(slot->name()), "=", name);
      CHECK(is_ruled_out(name));
      not_at_all.insert(name);
    }
    INFO(std::string(slot->name()), "=amx runs on emulated tiles too: tests/emulated_units.cpp");
    CHECK(names.contains("amx") <= names.contains("amx_emulated"));
  }
  for (const std::string& name : on_emulated_units) not_at_all.erase(name);
  // CI shows this line.
  const std::string& cap = cpu_features().cap;
  fmt::print("CPU variants{}: on hardware {}; on emulated units {}; not at all {}\n",
             cap.empty() ? "" : " with HALFSTEP_ISA=" + cap, list(on_hardware), list(on_emulated_units),
             list(not_at_all));
}

}  // namespace hs::test
