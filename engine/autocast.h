// Mixed precision: inside an Autocast scope the ops that are made of matrix products (linear, feed_forward, conv2d)
// work in f16 or bf16 with f32 sums; everything else (loss, reductions, optimizer, the parameters themselves) stays
// f32. A parameter is cast once for each scope, all of them in one kernel, not once for each call. Micikevicius et al.,
// "Mixed precision training", ICLR 2018.
#pragma once

#include <string_view>

#include "engine/ambient.h"
#include "engine/module.h"

namespace hs {

enum class Precision : uint8_t {
  f32,   // f32 everywhere
  tf32,  // f32 tensors; products may round their factors to TF32 (CUDA tensor cores; the same as f32 on the CPU)
  f16,
  bf16,
};

const char* name(Precision precision);
// Throws Error (usage) for anything but f32, tf32, f16, bf16.
Precision parse_precision(std::string_view name);

class Autocast {
 public:
  // Casts the parameters as they are now. A scope is opened at the start of a step, after the update of the one before;
  // a parameter that changes inside is noticed and cast at each use.
  Autocast(Precision precision, ParameterArena& arena);
  // For work without an arena: parameters are cast at each use.
  explicit Autocast(Precision precision);

 private:
  AmbientScope scope_;
};

}  // namespace hs
