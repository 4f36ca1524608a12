// The number of arithmetic operations of a kernel call, from the shapes of its tensors.
#pragma once

#include <span>
#include <string_view>

#include "bench/measure/observers/kernel_trace.h"
#include "engine/kernel.h"

namespace hs::bench::measure {

// Operations of a matrix product or a convolution, with a multiply-add as two; 0 for kernels that only move bytes.
// shapes: of the call's tensors(); an undefined tensor has no elements.
double flops_of(std::string_view slot, std::span<const Shape> shapes);
inline double flops_of(const TimedCall& call) { return flops_of(call.call.slot, call.shapes); }

}  // namespace hs::bench::measure
