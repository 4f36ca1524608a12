// Change of element type among f32, f16, bf16 and f64: exact when widening, round to nearest even when narrowing.
#pragma once

#include "engine/ambient.h"
#include "engine/autograd.h"

namespace hs {

Tensor cast(const Tensor& x, DType dtype);  // differentiable; x itself if it has this type

// What autocast() and autocast_parameter() of kernels/gemm/gemm.h return in an Autocast scope of 16 bits.
Tensor cast_operand(const Tensor& x);               // f64 stays
Tensor cast_of_parameter(const Tensor& parameter);  // see cast_operand()

}  // namespace hs
