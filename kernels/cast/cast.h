// Change of element type among f32, f16, bf16 and f64: exact when widening, round to nearest even when narrowing.
#pragma once

#include "engine/autocast.h"
#include "engine/autograd.h"

namespace hs {

Tensor cast(const Tensor& x, DType dtype);

// What an op does with an operand inside an Autocast scope: x in the scope's type, differentiably. Outside, x itself.
Tensor autocast(const Tensor& x);
// The same for a parameter: the copy that the scope made. It has no history: the op's backward rule gives the gradient
// of the parameter itself, in f32.
Tensor autocast_parameter(const Tensor& parameter);

}  // namespace hs
