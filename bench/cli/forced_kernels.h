// ForcedKernels: the variants of --kernel, forced for the lifetime of the object.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel.h"

namespace hs::bench::cli {

KernelSlot* find_slot(const std::string& name);  // nullptr: there is none

// Forces the variants, each SLOT=VARIANT, while it is alive. Throws what force_variant() throws, and Error (usage) if a
// slot is given twice.
class ForcedKernels : NonCopyable {
 public:
  explicit ForcedKernels(std::vector<std::string> assignments);
  ~ForcedKernels();
  // Throws Error (usage) if a forced slot is not a key of `used`. `who`: what ran, for the message.
  void check_used(const std::map<std::string, std::string>& used, std::string_view who) const;

 private:
  const std::vector<std::string> assignments_;
};

// Calls body() with each of the slot's variants for the device forced in turn; ends it where the variant does not
// support what it calls.
void with_each_variant(const KernelSlot& slot, Device device, const std::function<void(const VariantBase&)>& body);

}  // namespace hs::bench::cli
