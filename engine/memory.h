// Memory explained: what each storage is for.
//
// Every storage has a purpose from the moment it is made until it is freed:
//   parameters   the parameters' values, and their copies in 16 bits
//   gradients    the parameters' gradients, and what backward() passes from op to op
//   optimizer    its state, the loss scale, step counter and learning rate
//   activations  what ops of the forward pass make: results, and what they save for backward. A checkpointed segment's
//                are counted again when it runs again.
//   workspace    scratch memory of one kernel call
//   loader       batches, on the host and on the device
//   other        anything else: the losses kept for the log, tensors that a user makes
// The innermost MemoryPurposeScope decides; where there is none, what is made inside an op is an activation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/device.h"

namespace hs {

enum class MemoryPurpose : uint8_t { parameters, gradients, optimizer, activations, workspace, loader, other };
inline constexpr size_t memory_purposes = 7;
const char* name(MemoryPurpose purpose);

// Bytes of each purpose, indexed with static_cast<size_t>(purpose).
using BytesByPurpose = std::array<size_t, memory_purposes>;

// Storages made on this thread while it lives have this purpose. Scopes nest.
class MemoryPurposeScope {
 public:
  explicit MemoryPurposeScope(MemoryPurpose purpose);
  ~MemoryPurposeScope();
  MemoryPurposeScope(const MemoryPurposeScope&) = delete;
  MemoryPurposeScope& operator=(const MemoryPurposeScope&) = delete;

  static MemoryPurpose current();

 private:
  const int before_;
};

}  // namespace hs
