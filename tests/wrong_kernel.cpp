// A variant of gemm that is wrong, as a library to load before a program: tests/test_bench_kernels.cpp.
#include "kernels/gemm.h"

namespace hs {
namespace {

REGISTER_KERNEL(gemm, cpu, "wrong",
                {.run = [](const Tensor&, const Tensor&, const Tensor&, const GemmOptions&, Tensor&, Tensor&,
                           Tensor& c) { c.fill_zero(); },
                 .supported = [](const Tensor& a, const Tensor&, const Tensor&, const GemmOptions&, Tensor&, Tensor&,
                                 Tensor&) { return a.dtype() == DType::f32; },
                 .rank = 99});

}  // namespace
}  // namespace hs
