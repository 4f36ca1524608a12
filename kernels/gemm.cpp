#include "kernels/gemm.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu.h"
#include "kernels/eigen.h"

namespace hs {

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const GemmOptions& options) {
  check(a.shape().rank() == 2 && b.shape().rank() == 2 && a.dtype() == b.dtype(),
        "matmul: a is {} {} and b is {} {}, expected two matrices of one dtype", name(a.dtype()), a.shape().to_string(),
        name(b.dtype()), b.shape().to_string());
  const int64_t M = a.shape()[options.transpose_a ? 1 : 0], K = a.shape()[options.transpose_a ? 0 : 1];
  const int64_t KB = b.shape()[options.transpose_b ? 1 : 0], N = b.shape()[options.transpose_b ? 0 : 1];
  check(K == KB, "matmul: op(a) has {} columns but op(b) has {} rows", K, KB);
  check(!bias.defined() || bias.shape() == Shape{N}, "matmul: bias is {}, expected ({})", bias.shape().to_string(), N);
  Tensor c = Tensor::empty({M, N}, a.dtype(), a.device());
  gemm(a, b, bias, options, c);
  return c;
}

namespace {

// Eigen over blocks of rows of C. The block borders depend on M alone.
void gemm_eigen(const Tensor& a, const Tensor& b, const Tensor& bias, const GemmOptions& options, Tensor& c) {
  prepare_eigen();
  const int64_t M = c.shape()[0], N = c.shape()[1];
  const int64_t K = a.shape()[options.transpose_a ? 0 : 1];
  const int64_t block = std::max<int64_t>(32, (M + 15) / 16);
  for_float_type(a.dtype(), [&]<class T>() {
    const auto A = as_matrix(a.data<T>(), a.shape()[0], a.shape()[1]);
    const auto B = as_matrix(b.data<T>(), b.shape()[0], b.shape()[1]);
    auto C = as_matrix(c.mutable_data<T>(), M, N);
    const T* bias_data = bias.defined() ? bias.data<T>() : nullptr;
    const T alpha = static_cast<T>(options.alpha), beta = static_cast<T>(options.beta);
    parallel_ranges(M, block, [&](int64_t begin, int64_t end) {
      auto rows = C.middleRows(begin, end - begin);
      if (beta == T(0)) {
        rows.setZero();
      } else if (beta != T(1)) {
        rows *= beta;
      }
      if (K > 0 && options.transpose_a) {
        const auto left = A.middleCols(begin, end - begin).transpose();
        if (options.transpose_b) {
          rows.noalias() += alpha * left * B.transpose();
        } else {
          rows.noalias() += alpha * left * B;
        }
      } else if (K > 0) {
        const auto left = A.middleRows(begin, end - begin);
        if (options.transpose_b) {
          rows.noalias() += alpha * left * B.transpose();
        } else {
          rows.noalias() += alpha * left * B;
        }
      }
      if (bias_data) rows.rowwise() += as_matrix(bias_data, 1, N).row(0);
    });
  });
}

REGISTER_KERNEL(gemm, cpu, "eigen",
                {.run = gemm_eigen,
                 .supported = [](const Tensor& a, const Tensor&, const Tensor&, const GemmOptions&, Tensor&) {
                   return is_f32_or_f64(a);
                 }});

}  // namespace
}  // namespace hs
