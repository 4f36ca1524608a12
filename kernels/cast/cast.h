// Change of element type among f32, f16, bf16 and f64: exact when widening, round to nearest even when narrowing.
#pragma once

#include "engine/autocast.h"
#include "engine/autograd.h"

namespace hs {

Tensor cast(const Tensor& x, DType dtype);  // differentiable; x itself if it has this type

// Casts an op's operand inside an Autocast scope: returns x in the scope's type, differentiably. Outside, x itself.
Tensor autocast(const Tensor& x);
// The same for a parameter: returns the scope's copy, which has no history: the op's backward rule returns the gradient
// of the parameter itself, in f32.
Tensor autocast_parameter(const Tensor& parameter);

}  // namespace hs
