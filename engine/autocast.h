// Mixed precision: inside an Autocast scope the ops built on matrix products (linear, feed_forward, conv2d,
// causal_attention) take 16-bit factors, add them up in f32 and store their results in 16 bits. So the activations
// between them and their gradients have 16 bits too: an op stores what it was given and computes in f32. The
// parameters, their gradients, the loss and the optimizer are f32. Parameters are cast once per scope, all in one
// kernel, not once per call. Micikevicius et al., "Mixed precision training", ICLR 2018.
#pragma once

#include "engine/ambient.h"
#include "engine/module.h"

namespace hs {

// What the ops built on matrix products compute in.
enum class Precision : uint8_t {
  f32,   // f32 everywhere
  tf32,  // f32 tensors; products may round their factors to TF32 (CUDA tensor cores; the same as f32 on the CPU)
  f16,
  bf16,
};

const char* name(Precision precision);  // "f32", "tf32", "f16" or "bf16"

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
