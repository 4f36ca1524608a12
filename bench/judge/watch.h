// What a kernel does beside its results, seen in the subject while a row of the op table runs.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "bench/cli/json_file.h"
#include "engine/kernel.h"

namespace hs::bench::judge {

// Whether nothing was written to these bytes since set_poison(true) made them.
inline bool is_poison(std::span<const unsigned char> bytes) {
  return std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0xff; });
}

// Runs `trusted` with each other variant of the slot that takes the row, to see which bytes its calls write, then
// `judged` with this one forced, each of its calls twice on other contents of the outputs. Returns what it found, the
// first of each kind: [{check, text}]. The checks are
//   inputs      it changes a tensor that no other variant writes
//   written     it leaves bytes of an output that every other variant writes
//   repeat      the second call gives other bits
//   allocation  it allocates; not for CUDA, where a launch does on the emulator
//   denormals   it leaves the processor's floating-point settings changed
// Calls whose first tensor is not on the device are left alone. REQUIRES: set_poison(true)
Json watched(KernelSlot& slot, const std::string& variant, Device device, const std::function<void()>& trusted,
             const std::function<void()>& judged);

}  // namespace hs::bench::judge
