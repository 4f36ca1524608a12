// A variant of gemm that is wrong, as a library to load before a program: tests/bench/kernels.cpp.
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

void run(const Gemm& call) { call.c.fill_zero(); }

REGISTER_KERNEL(gemm, cpu, "wrong",
                {.run = run,
                 .supported = [](const Gemm& call) { return call.a.dtype() == DType::f32; },
                 .rank = 99,
                 .layout = "rows"});

}  // namespace
}  // namespace hs
