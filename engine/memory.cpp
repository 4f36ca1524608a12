#include "engine/memory.h"

#include "engine/observe.h"

namespace hs {
namespace {

constexpr const char* names[memory_purposes] = {"parameters", "gradients", "optimizer", "activations",
                                                "workspace",  "loader",    "other"};
constexpr int none = -1;
thread_local int scoped = none;

}  // namespace

const char* name(MemoryPurpose purpose) { return names[static_cast<size_t>(purpose)]; }

MemoryPurposeScope::MemoryPurposeScope(MemoryPurpose purpose) : before_(scoped) { scoped = static_cast<int>(purpose); }
MemoryPurposeScope::~MemoryPurposeScope() { scoped = before_; }

MemoryPurpose MemoryPurposeScope::current() {
  if (scoped != none) return static_cast<MemoryPurpose>(scoped);
  return *Op::current() ? MemoryPurpose::activations : MemoryPurpose::other;
}

}  // namespace hs
