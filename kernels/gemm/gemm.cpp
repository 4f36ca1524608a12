// Functions around the slot. Its kernels on the CPU, simplest first: naive.cpp, eigen.cpp, blocked.cpp; for bf16 also
// avx512_bf16.cpp and amx.cpp, which share blocked.h with it. On CUDA: naive.cu, tiled.cu, wmma.cu, mma.cu,
// cublaslt.cu.
#include "kernels/gemm/gemm.h"

#include "engine/check.h"

namespace hs {

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const GemmOptions& options) {
  const Op op("matmul");
  check(a.shape().rank() == 2 && b.shape().rank() == 2 && a.dtype() == b.dtype(),
        "matmul: a is {} {} and b is {} {}, expected two matrices of one dtype", name(a.dtype()), a.shape(),
        name(b.dtype()), b.shape());
  const int64_t M = a.shape()[options.transpose_a ? 1 : 0], K = a.shape()[options.transpose_a ? 0 : 1];
  const int64_t KB = b.shape()[options.transpose_b ? 1 : 0], N = b.shape()[options.transpose_b ? 0 : 1];
  check(K == KB, "matmul: op(a) has {} columns but op(b) has {} rows", K, KB);
  check(!bias.defined() || bias.shape() == Shape{N}, "matmul: bias is {}, expected ({})", bias.shape(), N);
  Tensor c = Tensor::empty({M, N}, a.dtype(), a.device());
  gemm({.a = a, .b = b, .bias = bias, .options = options, .c = c});
  return c;
}

void matmul_into(const Tensor& a, const Tensor& b, const GemmOptions& options, Tensor& c) {
  gemm({.a = a, .b = b, .options = options, .c = c});
}

Tensor matmul_gradient(const Tensor& a, const Tensor& b, GemmOptions options, const GradientTarget& parameter) {
  if (!parameter.wanted()) return {};
  const GradientMode mode = gradient_mode({&parameter});
  if (mode == GradientMode::add) options.beta = 1;
  Tensor gradient = parameter.tensor(mode, a.device());
  matmul_into(a, b, options, gradient);
  return mode == GradientMode::fresh ? gradient : Tensor();
}

Tensor gemm_mask(int64_t M, int64_t N, Device device) {
  return Tensor::empty({M, gemm_mask_row(N)}, DType::u8, device);
}

}  // namespace hs
