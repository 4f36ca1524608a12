// The checks of rows, as those of a test: a failed one is doctest's.
#pragma once

#include <doctest/doctest.h>

#include "kernels/examples/checks.h"

namespace hs::test {
using namespace examples;

inline bool report_to_doctest() {
  set_failure_handler([](const std::string& line) { FAIL_CHECK(line); });
  return true;
}
inline const bool reports_to_doctest = report_to_doctest();  // in each program that includes this

// Calls body(row, how) for each row and type that it has on the device, but f64.
template <class Body>
void for_each_run(Device device, const Body& body) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const OpCase& row : op_table()) {
      if ((device == Device::cuda && !row.cuda) || (dtype != DType::f32 && !row.half)) continue;
      const RowRun how = run_on(device, dtype);
      guard_row(row, how, [&] { body(row, how); });
    }
  }
}

// Forces a variant for as long as it lives.
struct ForcedVariant {
  ForcedVariant(KernelSlot& slot_, const char* variant) : slot(slot_) { slot.force(variant); }
  ~ForcedVariant() { slot.force(nullptr); }
  KernelSlot& slot;
};

// How often the variants of a slot were called, all together.
inline uint64_t calls_of(const KernelSlot& slot) {
  uint64_t calls = 0;
  for (const VariantBase* variant = slot.variants(); variant; variant = variant->next) calls += variant->calls;
  return calls;
}

}  // namespace hs::test
