#include "kernels/gemm.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu.h"
#include "kernels/eigen.h"
#include "kernels/gemm_epilogue.h"

namespace hs {

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const GemmOptions& options) {
  const Op op("matmul");
  check(a.shape().rank() == 2 && b.shape().rank() == 2 && a.dtype() == b.dtype(),
        "matmul: a is {} {} and b is {} {}, expected two matrices of one dtype", name(a.dtype()), a.shape().to_string(),
        name(b.dtype()), b.shape().to_string());
  const int64_t M = a.shape()[options.transpose_a ? 1 : 0], K = a.shape()[options.transpose_a ? 0 : 1];
  const int64_t KB = b.shape()[options.transpose_b ? 1 : 0], N = b.shape()[options.transpose_b ? 0 : 1];
  check(K == KB, "matmul: op(a) has {} columns but op(b) has {} rows", K, KB);
  check(!bias.defined() || bias.shape() == Shape{N}, "matmul: bias is {}, expected ({})", bias.shape().to_string(), N);
  Tensor c = Tensor::empty({M, N}, a.dtype(), a.device());
  gemm({.a = a, .b = b, .bias = bias, .options = options, .c = c});
  return c;
}

void matmul_into(const Tensor& a, const Tensor& b, const GemmOptions& options, Tensor& c) {
  gemm({.a = a, .b = b, .options = options, .c = c});
}

Tensor matmul_gradient(const Tensor& a, const Tensor& b, GemmOptions options, const GradientTarget& parameter) {
  if (!parameter.wanted()) return {};
  const bool accumulate = parameter.has_sum();
  if (accumulate) options.beta = 1;
  Tensor gradient = parameter.tensor(accumulate, a.device());
  matmul_into(a, b, options, gradient);
  return accumulate ? Tensor() : gradient;
}

Tensor gemm_mask(int64_t M, int64_t N, Device device) {
  return Tensor::empty({M, gemm_mask_row(N)}, DType::u8, device);
}

namespace {

// Eigen over blocks of rows of C. The block borders depend on M alone.
void gemm_eigen(const Gemm& call) {
  const GemmOptions& options = call.options;
  prepare_eigen();
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1];
  const int64_t K = call.a.shape()[options.transpose_a ? 0 : 1];
  const int64_t block = std::max<int64_t>(32, (M + 15) / 16);
  uint8_t* mask = options.epilogue == Epilogue::relu ? call.mask.mutable_data<uint8_t>() : nullptr;
  const uint8_t* saved = options.epilogue == Epilogue::relu_backward ? call.saved_mask.data<uint8_t>() : nullptr;
  for_f32_or_f64(call.a.dtype(), [&]<class T>() {
    const auto A = as_matrix(call.a.data<T>(), call.a.shape()[0], call.a.shape()[1]);
    const auto B = as_matrix(call.b.data<T>(), call.b.shape()[0], call.b.shape()[1]);
    auto C = as_matrix(call.c.mutable_data<T>(), M, N);
    const T* bias_data = call.bias.defined() ? call.bias.data<T>() : nullptr;
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
      for (int64_t row = begin; mask && row < end; ++row) {
        relu_row(N, &C(row, 0), mask + row * gemm_mask_row(N), gemm_mask_row(N));
      }
      for (int64_t row = begin; saved && row < end; ++row) apply_mask(N, saved + row * gemm_mask_row(N), &C(row, 0));
    });
  });
  if (saved) sum_columns(call.c, call.bias_gradient);
}

REGISTER_KERNEL(gemm, cpu, "eigen",
                {.run = gemm_eigen,
                 .supported = [](const Gemm& call) { return is_f32_or_f64(call.a); },
                 .layout = "rows"});

}  // namespace
}  // namespace hs
