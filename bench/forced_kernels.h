// Variants of kernels for a while.
#pragma once

#include <string>
#include <vector>

namespace hs::bench {

// These variants, SLOT=VARIANT each, and no others of their slots, as long as it lives. Throws what force_variant()
// does.
class ForcedKernels {
 public:
  explicit ForcedKernels(std::vector<std::string> assignments);
  ~ForcedKernels();
  ForcedKernels(const ForcedKernels&) = delete;
  ForcedKernels& operator=(const ForcedKernels&) = delete;

 private:
  const std::vector<std::string> assignments_;
};

}  // namespace hs::bench
