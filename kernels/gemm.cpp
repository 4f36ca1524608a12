#include "kernels/gemm.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu.h"
#include "kernels/eigen.h"

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
  Tensor none;
  gemm(a, b, bias, options, none, none, c);
  return c;
}

void matmul_into(const Tensor& a, const Tensor& b, const GemmOptions& options, Tensor& c) {
  Tensor none;
  gemm(a, b, {}, options, none, none, c);
}

Tensor matmul_gradient(const Tensor& a, const Tensor& b, GemmOptions options, DType dtype, Tensor* leaf_sum) {
  if (leaf_sum) {
    options.beta = 1;
    matmul_into(a, b, options, *leaf_sum);
    return {};
  }
  const int64_t M = a.shape()[options.transpose_a ? 1 : 0], N = b.shape()[options.transpose_b ? 0 : 1];
  Tensor gradient = Tensor::empty({M, N}, dtype, a.device());
  matmul_into(a, b, options, gradient);
  return gradient;
}

Tensor gemm_mask(int64_t M, int64_t N, Device device) {
  return Tensor::empty({M, gemm_mask_row(N)}, DType::u8, device);
}

namespace {

// One row of C and of the mask, bit j % 8 of byte j / 8 for column j.
template <class T>
void apply_mask(Epilogue epilogue, int64_t N, uint8_t* bits, T* row) {
  if (epilogue == Epilogue::relu) std::fill_n(bits, gemm_mask_row(N), uint8_t{0});
  for (int64_t j = 0; j < N; ++j) {
    uint8_t& byte = bits[j / 8];
    const auto bit = static_cast<uint8_t>(1u << (j % 8));
    if (epilogue == Epilogue::relu) {
      if (row[j] <= 0) {  // false for NaN, which is kept
        row[j] = 0;
      } else {
        byte |= bit;
      }
    } else if (!(byte & bit)) {
      row[j] = 0;
    }
  }
}

// Eigen over blocks of rows of C. The block borders depend on M alone.
void gemm_eigen(const Tensor& a, const Tensor& b, const Tensor& bias, const GemmOptions& options, Tensor& mask,
                Tensor& bias_gradient, Tensor& c) {
  prepare_eigen();
  const int64_t M = c.shape()[0], N = c.shape()[1];
  const int64_t K = a.shape()[options.transpose_a ? 0 : 1];
  const int64_t block = std::max<int64_t>(32, (M + 15) / 16);
  uint8_t* bits = nullptr;
  if (options.epilogue == Epilogue::relu) bits = mask.mutable_data<uint8_t>();
  if (options.epilogue == Epilogue::relu_backward) bits = const_cast<uint8_t*>(mask.data<uint8_t>());  // read only
  for_f32_or_f64(a.dtype(), [&]<class T>() {
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
      for (int64_t row = begin; bits && row < end; ++row) {
        apply_mask(options.epilogue, N, bits + row * gemm_mask_row(N), &C(row, 0));
      }
    });
    if (options.epilogue != Epilogue::relu_backward) return;
    T* sum = bias_gradient.mutable_data<T>();
    parallel_ranges(N, 64, [&](int64_t begin, int64_t end) {
      for (int64_t column = begin; column < end; ++column) {
        double total = 0;
        for (int64_t row = 0; row < M; ++row) total += C(row, column);
        sum[column] = static_cast<T>(total);
      }
    });
  });
}

REGISTER_KERNEL(gemm, cpu, "eigen",
                {.run = gemm_eigen,
                 .supported = [](const Tensor& a, const Tensor&, const Tensor&, const GemmOptions&, Tensor&, Tensor&,
                                 Tensor&) { return is_f32_or_f64(a); }});

}  // namespace
}  // namespace hs
