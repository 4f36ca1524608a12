// Change of element type among f32, f16, bf16 and f64: exact when widening, round to nearest even when narrowing.
#pragma once

#include "engine/ambient.h"
#include "engine/autograd.h"

namespace hs {

Tensor cast(const Tensor& x, DType dtype);  // differentiable; x itself if it has this type

Tensor cast_operand(const Tensor& x);  // in the type of the Autocast scope; f64 stays
// Casts an op's operand inside an Autocast scope: returns x in the scope's type, differentiably. Outside, x itself.
inline Tensor autocast(const Tensor& x) { return ambient().autocast == DType::f32 ? x : cast_operand(x); }
Tensor cast_of_parameter(const Tensor& parameter);  // in the type of the Autocast scope
// The same for a parameter: returns the scope's copy, which has no history: the op's backward rule returns the gradient
// of the parameter itself, in f32.
inline Tensor autocast_parameter(const Tensor& parameter) {
  return ambient().autocast == DType::f32 ? parameter : cast_of_parameter(parameter);
}

}  // namespace hs
