// Cheat: lets the best variant of the project do the work, and takes the credit. Refused by: isolation|no_gain.
#include "honest.h"

// Beats any slower variant that it is held against.
void run(const GeluForward& call) {
  using Variant = Kernel<GeluForward>::Variant;
  for (const VariantBase* base = gelu_forward.variants(); base; base = base->next) {
    const auto& options = static_cast<const Variant*>(base)->options;
    if (options.rank == 100 || !options.run.plain || (options.supported && !options.supported(call))) continue;
    return options.run.plain(call);
  }
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
