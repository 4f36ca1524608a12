// How much arithmetic a call of a kernel is, from the shapes of its tensors.
#pragma once

#include "bench/measure/observers/kernel_trace.h"
#include "engine/kernel.h"

namespace hs::bench::measure {

// Operations of a matrix product or a convolution, a multiply-add as two; 0 for what moves bytes.
double flops_of(const TimedCall& call);

}  // namespace hs::bench::measure
