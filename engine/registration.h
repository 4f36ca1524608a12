// What became of registrations, for who loads kernels while the program runs.
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace hs {

struct RefusedVariant {
  const KernelSlot& slot;
  const VariantBase& variant;
};

// Those that their slot did not take, because it has one of this name on this device: in the order of registration.
const std::vector<RefusedVariant>& refused_variants();

}  // namespace hs
