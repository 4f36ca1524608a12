// ForcedKernels: the variants of --kernel, forced for the lifetime of the object.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hs::bench::cli {

// Forces the variants, each SLOT=VARIANT, while it is alive. Throws what force_variant() throws, and Error (usage) if a
// slot is given twice.
class ForcedKernels {
 public:
  explicit ForcedKernels(std::vector<std::string> assignments);
  ~ForcedKernels();
  // Throws Error (usage) if a forced slot is not a key of `used`. `who`: what ran, for the message.
  void check_used(const std::map<std::string, std::string>& used, std::string_view who) const;
  ForcedKernels(const ForcedKernels&) = delete;
  ForcedKernels& operator=(const ForcedKernels&) = delete;

 private:
  const std::vector<std::string> assignments_;
};

}  // namespace hs::bench::cli
