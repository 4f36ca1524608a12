// Arrays of f16 and bf16 to f32 and back, with the results of engine/float16.h bit by bit (except that a signalling
// NaN may become a quiet one). CPU kernels compute on 16-bit tensors with these: they widen a block, compute in f32 and
// narrow the result. CPU files only.
#pragma once

#include <cstdint>

#include "engine/float16.h"

namespace hs {

void widen(const Half* from, float* to, int64_t count);
void widen(const BFloat16* from, float* to, int64_t count);
void narrow(const float* from, Half* to, int64_t count);
void narrow(const float* from, BFloat16* to, int64_t count);

}  // namespace hs
