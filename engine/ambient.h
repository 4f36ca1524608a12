// The implicit inputs of a forward pass, one set per thread: whether history is recorded, whether this is training, and
// which step the random numbers are for. A checkpointed block is recomputed under the values of its first run. The step
// is a tensor because a captured step is replayed with the same host values: what changes must be on the device.
#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace hs {

class ParameterArena;

// The implicit inputs; see the head of this file.
struct Ambient {
  bool recording = true;        // ops attach autograd history
  bool met_gradient = false;    // for checkpoint(): an unrecorded op had an input that requires a gradient
  bool training = true;         // dropout drops
  bool tf32 = false;            // f32 products may round their factors to TF32
  bool fuse = true;             // ops that are made of others run as one kernel where there is one
  DType autocast = DType::f32;  // type of matrix products and convolutions (see Autocast)
  uint64_t seed = 0;            // of the run
  Tensor step;                  // i32 scalar on the model's device: optimizer steps taken so far; undefined: 0
  uint32_t micro_step = 0;      // micro-batches of this step so far
};

inline Ambient& ambient() {  // this thread's values
  thread_local Ambient value;
  return value;
}

// Restores the ambient value at the end of the scope.
class AmbientScope : NonCopyable {
 public:
  AmbientScope() : before_(ambient()) {}
  explicit AmbientScope(const Ambient& value) : before_(ambient()) { ambient() = value; }
  ~AmbientScope() { ambient() = before_; }

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

// What the ops built on matrix products compute in.
enum class Precision : uint8_t {
  f32,   // f32 everywhere
  tf32,  // f32 tensors; products may round their factors to TF32 (CUDA tensor cores; the same as f32 on the CPU)
  f16,
  bf16,
};

const char* name(Precision precision);  // "f32", "tf32", "f16" or "bf16"

// Mixed precision: inside an Autocast scope the ops built on matrix products (linear, feed_forward, gelu_feed_forward,
// conv2d, causal_attention) take 16-bit factors, add them up in f32 and store their results in 16 bits. So the
// activations between them and their gradients have 16 bits too: an op stores what it was given and computes in f32.
// The parameters, their gradients, the loss and the optimizer are f32. Parameters are cast once per scope, all in one
// kernel, not once per call. Micikevicius et al., "Mixed precision training", ICLR 2018.
class Autocast {  // for this thread, while it is alive; scopes nest
 public:
  // Casts the parameters' current values. Open a scope at the start of a step, after the previous step's update; a
  // parameter modified inside the scope is detected and cast at each use.
  Autocast(Precision precision, ParameterArena& arena);
  // Without an arena, parameters are cast at each use.
  explicit Autocast(Precision precision);

 private:
  AmbientScope scope_;
};

}  // namespace hs
