// What the CPU kernels share: dispatch over the computing types.
#pragma once

#include "engine/parallel.h"
#include "engine/tensor.h"

namespace hs {

inline bool is_f32(const Tensor& x) { return x.dtype() == DType::f32; }
inline bool is_f32_or_f64(const Tensor& x) { return is_f32(x) || x.dtype() == DType::f64; }

// Calls body.operator()<T>() with T = float or double. REQUIRES: is_f32_or_f64 for this dtype; variants say so in
// `supported`.
template <class Body>
void for_float_type(DType dtype, const Body& body) {
  if (dtype == DType::f64) {
    body.template operator()<double>();
  } else {
    body.template operator()<float>();
  }
}

}  // namespace hs
