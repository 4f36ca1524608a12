// Cheat: replaces the variants to beat by slow ones, in the slot's list. Refused by: isolation|no_gain.
#include "honest.h"

void run(const Gemm& call) { honest(call); }

void run_slowly(const Gemm& call) {
  for (int i = 0; i < 100; ++i) honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});

// After the registration, as objects of a file are made in their order.
const bool replaced = [] {
  for (const VariantBase* variant = gemm.variants(); variant; variant = variant->next) {
    auto& options = const_cast<Kernel<Gemm>::Options&>(static_cast<const Kernel<Gemm>::Variant*>(variant)->options);
    if (options.rank == 100) continue;
    options.run = run_slowly, options.supported = is_easy<Gemm>, options.workspace = nullptr;
  }
  return true;
}();
