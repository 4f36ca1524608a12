// What became of registrations, for who loads kernels while the program runs.
#pragma once

#include <vector>

#include "engine/kernel.h"

namespace hs {

struct RefusedVariant {
  const KernelSlot& slot;
  const VariantBase& variant;
};

// Whether it can be a slot's or a variant's: of a to z, 0 to 9 and _, and not empty. nullptr cannot.
bool is_kernel_name(const char* name);

// Those that their slot did not take, because it has one of this name on this device, or because this is no name: in
// the order of registration.
const std::vector<RefusedVariant>& refused_variants();

}  // namespace hs
