// Change of element type among f32, f16, bf16 and f64: exact when widening, round to nearest even when narrowing.
#pragma once

#include "engine/autograd.h"
#include "engine/kernel.h"

namespace hs {

Tensor cast(const Tensor& x, DType dtype);

constinit inline Kernel<void(const Tensor& x, Tensor& y)> cast_forward{"cast_forward"};

}  // namespace hs
