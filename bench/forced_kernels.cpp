#include "bench/forced_kernels.h"

#include <utility>

#include "engine/kernel.h"

namespace hs::bench {

ForcedKernels::ForcedKernels(std::vector<std::string> assignments) : assignments_(std::move(assignments)) {
  for (const std::string& assignment : assignments_) force_variant(assignment);
}

ForcedKernels::~ForcedKernels() {
  for (const std::string& assignment : assignments_) {
    for (KernelSlot* slot : kernel_slots()) {
      if (assignment.starts_with(std::string(slot->name()) + "=")) slot->force(nullptr);
    }
  }
}

}  // namespace hs::bench
