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
