// Mixed precision: inside an Autocast scope the ops built on matrix products (linear, feed_forward, conv2d) compute in
// f16 or bf16 with f32 sums; everything else (loss, reductions, optimizer, the parameters themselves) stays f32.
// Parameters are cast once per scope, all in one kernel, not once per call. Micikevicius et al., "Mixed precision
// training", ICLR 2018.
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
