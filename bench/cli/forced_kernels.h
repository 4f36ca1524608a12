// Variants of kernels for a while: what --kernel forces.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hs::bench::cli {

// These variants, SLOT=VARIANT each, and no others of their slots, as long as it lives. Throws what force_variant()
// does, and Error (usage) if a slot is there twice.
class ForcedKernels {
 public:
  explicit ForcedKernels(std::vector<std::string> assignments);
  ~ForcedKernels();
  // Throws Error (usage) if a slot is not among the used ones, which are the keys. `who`: what ran, for the message.
  void check_used(const std::map<std::string, std::string>& used, std::string_view who) const;
  ForcedKernels(const ForcedKernels&) = delete;
  ForcedKernels& operator=(const ForcedKernels&) = delete;

 private:
  const std::vector<std::string> assignments_;
};

}  // namespace hs::bench::cli
