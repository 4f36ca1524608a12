// The op table on the CUDA device: every row in f32, f16 and bf16 with every variant of every slot, as
// tests/kernels/op_variants.cpp does on the CPU. Then what must agree with the CPU bit for bit, and that nothing is
// left out: no slot without a CUDA variant, no CUDA variant that no row reaches in each type that it takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "kernels/cast/cast.h"
#include "tests/support/checks.h"
#include "tests/support/emulated.h"
#include "tests/support/sanitized.h"

namespace hs::test {
namespace {

[[maybe_unused]] double largest_input(const OpCase& row) {
  int64_t elements = 0;
  for (const Shape& shape : row.shapes) elements = std::max(elements, shape.size());
  return static_cast<double>(elements);
}

// The emulator does a few million steps of a kernel's threads in a second, a third of that under AddressSanitizer: rows
// above these sizes are for the device. What they add, more blocks than one, smaller rows have too.
const double share = with_address_sanitizer ? 0.1 : 1;
bool is_small([[maybe_unused]] const OpCase& row, [[maybe_unused]] double flops) {
#ifdef HALFSTEP_TEST_EMULATED
  return row.flops <= share * flops && largest_input(row) <= 17000;
#else
  return true;
#endif
}

// A product whose check cuBLASLt fails is computed by another variant, so that results alone would not tell.
void check_no_fallback() {
  int products = 0;
  for (const auto& [what, choice] : noted_choices()) {
    if (!what.starts_with("gemm ") || what.find(" aligned to ") != std::string::npos) continue;
    ++products;
    INFO(what);
#ifdef HALFSTEP_TEST_EMULATED
    CHECK(choice.starts_with("cublaslt "));  // a real library may have no algorithm for a shape
#else
    WARN(choice.starts_with("cublaslt "));
#endif
  }
  CHECK((products >= 50 * share || !is_whole_table()));
}

// Calls body(row, how) for each small row and type that it has on the device.
template <class Body>
void for_each_small_run(double flops, const Body& body) {
  for_each_run(Device::cuda, [&](const OpCase& row, const RowRun& how) {
    if (is_small(row, flops)) body(row, how);
  });
}

// What the rows say of a slot that they call on the CPU.
struct Declared {
  std::set<DType> on_cuda;        // by the rows for that device, in these types
  std::vector<std::string> rows;  // that are for the CPU alone
};
std::map<const KernelSlot*, Declared> declared_slots() {
  std::map<const KernelSlot*, Declared> all;
  for_each_run(Device::cpu, [&](const OpCase& row, const RowRun& how) {
    for (const KernelSlot* slot : slots_of(row, how)) {
      if (row.cuda) {
        all[slot].on_cuda.insert(how.dtype);
      } else {
        all[slot].rows.push_back(row.name);
      }
    }
  });
  return all;
}

bool every_variant_has_run = false;  // on every row, for the case that asks what was reached, unless it runs alone

}  // namespace

TEST_CASE(
    "every variant is within tolerance of the f64 reference in every type, and gives the same bits again, in any order "
    "of threads") {
  const Poisoned poisoned;
  int runs = 0;
  for_each_small_run(4e6, [&](const OpCase& row, const RowRun& how) {
    const Reference reference = reference_of(row, how);
    for_each_variant(row, how, [&](const std::string& description) {
      ++runs;
      const auto results = run_row(row, how);
#ifdef HALFSTEP_TEST_EMULATED
      const Emulator emulator;
      emulator::options().threads = emulator::Order::random;
#endif
      const auto again = run_row(row, how);
      check_close(row, how, reference, results, description);
      for (size_t i = 0; i < results.size(); ++i) {
        INFO(description, ", result ", i, " of a second run");
        CHECK(same_bytes(results[i], again[i]));
      }
    });
  });
  every_variant_has_run = true;
  MESSAGE(runs, " runs");
  CHECK((runs >= 800 * share || !is_whole_table()));
}

TEST_CASE("gradients that nobody wants and biases that are missing: every combination") {
  const Poisoned poisoned;
  int runs = 0;
  for_each_small_run(1e4, [&](const OpCase& row, const RowRun& how) { runs += check_combinations(row, how); });
  CHECK((runs >= 2000 * share || !is_whole_table()));
}

TEST_CASE("gradients are added to what the leaves hold") {
  const Poisoned poisoned;
  for (const OpCase& row : op_table()) {
    const RowRun how = run_on(Device::cuda, DType::f32);
    if (!row.cuda || !row.differentiable || row.integers || !is_small(row, 1e4)) continue;
    guard_row(row, how, [&] { check_added(row, how); });
  }
}

TEST_CASE("on small integers every variant is exact in every type") {
#ifdef HALFSTEP_TEST_EMULATED
  // Whatever the order of threads and blocks, and though no block sees what another has written in the same launch.
  // AddressSanitizer sees the same accesses in one order.
  const Emulator emulator;
  emulator::options().private_pages = emulator::options().print = true;
  emulator::options().every_order = share == 1;
#endif
  const Poisoned poisoned;
  for_each_small_run(1e6, [&](const OpCase& row, const RowRun& how) {
    if (row.integers && row.f64) check_integers(row, how);
  });
  check_no_fallback();
}

TEST_CASE("tensors that start anywhere in memory give results within tolerance") {
  for_each_small_run(1e6, [&](const OpCase& row, RowRun how) {
    how.unaligned = true;
    const Reference reference = reference_of(row, how);
    check_close(row, how, reference, run_row(row, how), std::string(name(how.dtype)) + " " + row.name + ", unaligned");
  });
}

TEST_CASE("a NaN in the input reaches the output, and a NaN gradient the gradients") {
  for_each_small_run(2e4, [&](const OpCase& row, const RowRun& how) {
    // cuBLASLt's ReLU is "max(x, 0)", and nothing says whether that keeps a NaN. The emulator's does not.
    if ((row.nan || row.nan_in_place > 0) && !row.name.starts_with("feed_forward")) check_nan(row, how);
  });
}

TEST_CASE("selections and single operations give the CPU's bits in f32") {
  int rows = 0;
  for (const OpCase& row : op_table()) {
    if (!row.same_on_devices || !row.cuda) continue;
    const auto cpu = run_row(row, run_on(Device::cpu, DType::f32));
    const auto cuda = run_row(row, run_on(Device::cuda, DType::f32));
    REQUIRE(cuda.size() == cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      INFO(row.name, ", result ", i);
      CHECK(same_bytes(cuda[i], cpu[i]));
    }
    ++rows;
  }
  CHECK((rows >= 40 || !is_whole_table()));
}

namespace {

// Signs, ties, subnormal numbers, the borders of overflow: of f32 around every number that a 16-bit type has.
std::vector<float> hard_to_round() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000; high += 7) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (const float value : {65504.0f, 65519.99f, 65520.0f, 0x1p-14f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1p-126f}) {
    for (const float sign : {1.0f, -1.0f}) {
      values.push_back(sign * value);
      values.push_back(std::nextafter(sign * value, 0.0f));
      values.push_back(std::nextafter(sign * value, sign * INFINITY));
    }
  }
  return values;
}

// The CPU's bits, which tests/engine/float16.cpp compares with the formats' definition; of a NaN any NaN.
void check_cast(const Tensor& x, DType dtype) {
  const Numbers expected = to_numbers(cast(x, dtype)), got = to_numbers(cast(x.to(Device::cuda), dtype));
  int64_t nan = 0, wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    nan += std::isnan(expected[i]);
    wrong += std::isnan(expected[i]) ? !std::isnan(got[i])
                                     : got[i] != expected[i] || std::signbit(got[i]) != std::signbit(expected[i]);
  }
  INFO(std::string(name(x.dtype())), " to ", std::string(name(dtype)));
  CHECK(wrong == 0);
  CHECK(nan > 100);
}

}  // namespace

TEST_CASE("casts: all 16-bit patterns widened and back, f32 to the nearest with ties to even") {
  const std::vector<float> values = hard_to_round();
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Tensor all = Tensor::empty({0x10000}, dtype);
    std::iota(static_cast<uint16_t*>(all.mutable_raw_data()), static_cast<uint16_t*>(all.mutable_raw_data()) + 0x10000,
              uint16_t{0});
    check_cast(all, DType::f32);
    check_cast(cast(all, DType::f32), dtype);
    check_cast(Tensor::from(values, {std::ssize(values)}), dtype);
  }
}

TEST_CASE("every slot has a CUDA variant unless its rows say otherwise, and the table reaches each in its types") {
  if (!every_variant_has_run) {
    for_each_small_run(4e6, [](const OpCase& row, const RowRun& how) {
      for_each_variant(row, how, [&](const std::string&) { run_row(row, how); });
    });
  }
  auto declared = declared_slots();
  for (const KernelSlot* slot : kernel_slots()) {
    const auto& [types_of_rows, cpu_rows] = declared[slot];
    if (!is_chosen(slot->name())) continue;  // not all rows that call it are there
    bool on_cpu = false, on_cuda = false;
    std::set<DType> served;
    for (const VariantBase* v = slot->variants(); v; v = v->next) {
      on_cpu = on_cpu || v->device == Device::cpu;
      on_cuda = on_cuda || v->device == Device::cuda;
      if (v->device == Device::cpu) continue;
      INFO(std::string(slot->name()), "=", std::string(v->name));
      const auto found = reached_variants().find(v);
      if (found == reached_variants().end()) {
        FAIL_CHECK("no row of kernels/*/rows.cpp reaches this variant on the device",
                   cpu_rows.empty() ? "" : "; take .cuda = false out of the row " + cpu_rows[0]);
        continue;
      }
      // A kernel is a template over its types, so that it takes both 16-bit types or neither.
      CHECK(found->second.contains(DType::f16) == found->second.contains(DType::bf16));
      served.insert(found->second.begin(), found->second.end());
    }
    INFO(std::string(slot->name()));
    if (on_cuda && is_whole_table()) {
      // A slot that no row calls on the CPU is one of the device's own.
      CHECK((served == types_of_rows || (types_of_rows.empty() && !on_cpu)));
    } else if (!on_cuda && on_cpu && cpu_rows.empty()) {
      FAIL_CHECK("no CUDA variant; write one, or put .cuda = false into the rows that call it");
    }
  }
}

}  // namespace hs::test
