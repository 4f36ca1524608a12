// An allocator for tests of CPU kernels: every storage ends at an inaccessible page, or begins at one, so an access
// past its end or before its beginning faults, whether it reads or writes and however it is compiled.
//
// Storages that end at a page are aligned as far as their size allows, up to 256 bytes: a tensor of n floats to at
// least 4. That is what kernels may expect of any tensor, because tensors share storage from any element on.
#pragma once

#include <string>

#include "engine/non_copyable.h"

namespace hs::examples {

// While one is alive, new storages of the CPU come from this allocator; there is at most one. From then on the engine
// caches no blocks (set_caching). The first access to a guard page prints one line and ends the process with exit code
// 1.
class GuardPages : NonCopyable {
 public:
  GuardPages();
  ~GuardPages();

  enum class Side { behind, before };
  static void set_side(Side side);                    // of new storages; at first behind
  static void set_description(const std::string& s);  // of what runs, for the line about a fault
};

}  // namespace hs::examples
