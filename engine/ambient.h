// The implicit inputs of a forward pass, one set per thread: whether history is recorded, whether this is training, and
// which step the random numbers are for. A checkpointed block is recomputed under the values of its first run. The step
// is a tensor because a captured step is replayed with the same host values: what changes must be on the device.
#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace hs {

// The implicit inputs; see the head of this file.
struct Ambient {
  bool recording = true;        // ops attach autograd history
  bool met_gradient = false;    // an op that was not recorded had an input that requires a gradient
  bool training = true;         // dropout drops
  bool tf32 = false;            // f32 products may round their factors to TF32
  bool fuse = true;             // ops that are made of others run as one kernel where there is one
  DType autocast = DType::f32;  // type of matrix products and convolutions (engine/autocast.h)
  uint64_t seed = 0;            // of the run
  Tensor step;                  // i32 scalar on the model's device: optimizer steps taken so far; undefined: 0
  uint32_t micro_step = 0;      // micro-batches of this step so far
};

inline Ambient& ambient() {  // this thread's values
  thread_local Ambient value;
  return value;
}

// Restores the ambient value at the end of the scope.
class AmbientScope {
 public:
  AmbientScope() : before_(ambient()) {}
  explicit AmbientScope(const Ambient& value) : before_(ambient()) { ambient() = value; }
  ~AmbientScope() { ambient() = before_; }
  AmbientScope(const AmbientScope&) = delete;
  AmbientScope& operator=(const AmbientScope&) = delete;

 private:
  Ambient before_;
};

// No history is recorded inside this scope.
class NoGrad {
 public:
  NoGrad() { ambient().recording = false; }

 private:
  AmbientScope scope_;  // constructed before the body above, destroyed after it
};

// For prediction: inside this scope no history is recorded, and layers behave as in use, not as in training (nothing is
// dropped).
class Inference {
 public:
  Inference() { ambient().recording = ambient().training = false; }

 private:
  AmbientScope scope_;
};

}  // namespace hs
