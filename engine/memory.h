// The purpose of each storage. The innermost MemoryPurposeScope decides it; without one, a storage created inside an op
// is an activation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/device.h"

namespace hs {

// Every storage has one purpose from its creation until it is freed:
//   parameters   the parameters' values, and their copies in 16 bits
//   gradients    the parameters' gradients, and what backward() passes from op to op
//   optimizer    its state, the loss scale, step counter and learning rate
//   activations  results of forward ops, and what they save for backward; those of a checkpointed segment are counted
//                again when it is recomputed
//   workspace    scratch memory of one kernel call
//   loader       batches, on the host and on the device
//   other        anything else: the losses kept for the log, tensors created by the user
enum class MemoryPurpose : uint8_t { parameters, gradients, optimizer, activations, workspace, loader, other };
inline constexpr size_t memory_purposes = 7;  // number of purposes
const char* name(MemoryPurpose purpose);      // "parameters"

// Bytes of each purpose, indexed with static_cast<size_t>(purpose).
using BytesByPurpose = std::array<size_t, memory_purposes>;

// Storages created on this thread while the scope is alive have this purpose. Scopes nest.
class MemoryPurposeScope {
 public:
  explicit MemoryPurposeScope(MemoryPurpose purpose);  // begins the scope
  ~MemoryPurposeScope();
  MemoryPurposeScope(const MemoryPurposeScope&) = delete;
  MemoryPurposeScope& operator=(const MemoryPurposeScope&) = delete;

  static MemoryPurpose current();  // what a storage created now would get

 private:
  const int before_;
};

}  // namespace hs
