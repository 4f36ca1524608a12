// Functions around the slot. Its kernels on the CPU, simplest first: the naive one below; eigen.cpp, blocked.cpp; for
// bf16 also avx512_bf16.cpp and amx.cpp, and for f16 avx512_fp16.cpp, which share blocked.h with it, on ARM neon.cpp.
// On CUDA: naive.cu, tiled.cu, wmma.cu, mma.cu, cublaslt.cu.
#include "kernels/gemm/gemm.h"

#include <algorithm>

#include "engine/check.h"
#include "kernels/cpu/elements.h"
#include "kernels/gemm/epilogue.h"

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
  if (claim_gradients({&parameter})) options.beta = 1;
  Tensor gradient = parameter.tensor(a.device());
  gemm({.a = a, .b = b, .options = options, .c = gradient});
  return gradient;
}

Tensor bias_gradient(const Tensor& dy, const GradientTarget& bias) {
  if (!bias.wanted()) return {};
  const bool accumulate = claim_gradients({&bias});
  Tensor sum = bias.tensor(dy.device());
  column_sum({dy, accumulate, sum});
  return sum;
}

// Rung 1 of gemm on the CPU: the definition. Row by row, each element of op(A) is multiplied by a row of op(B) and
// added to the row of C. It is the variant to read first, and the slowest. Next: kernels/gemm/eigen.cpp, where Eigen
// does the same in blocks that stay in the caches.
namespace {

template <class T>
void multiply(const Gemm& call) {
  const GemmOptions& o = call.options;
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1], K = call.a.shape()[o.transpose_a ? 0 : 1];
  const T* a = call.a.data<T>();  // op(A)[m, k] is a[m * a_row + k * a_step]
  const T* b = call.b.data<T>();  // op(B)[k, n] is b[k * b_row + n * b_step]
  const int64_t a_row = o.transpose_a ? 1 : K, a_step = o.transpose_a ? M : 1;
  const int64_t b_row = o.transpose_b ? 1 : N, b_step = o.transpose_b ? K : 1;
  const T* bias = call.bias.defined() ? call.bias.data<T>() : nullptr;
  T* c = call.c.mutable_data<T>();
  const T alpha = static_cast<T>(o.alpha), beta = static_cast<T>(o.beta);
  parallel(M, [=](int64_t m, int) {
    T* row = c + m * N;
    for (int64_t n = 0; n < N; ++n) row[n] = beta == 0 ? 0 : beta * row[n];  // with 0, what C held may be NaN
    for (int64_t k = 0; k < K; ++k) {
      const T factor = alpha * a[m * a_row + k * a_step];
      for (int64_t n = 0; n < N; ++n) row[n] += factor * b[k * b_row + n * b_step];
    }
    for (int64_t n = 0; bias && n < N; ++n) row[n] += bias[n];
  });
  if (o.epilogue != Epilogue::none) apply_epilogue(call);
}

void gemm_naive(const Gemm& call) {
  for_f32_or_f64(call.a.dtype(), [&]<class T>() { multiply<T>(call); });
}

// Columns are summed side by side, each from its first row to its last and in double.
void column_sum_cpu(const ColumnSum& call) {
  constexpr int64_t columns = 64;  // at a time: whole cache lines
  const int64_t C = call.x.shape().back(), rows = call.x.shape().rows();
  for_float_type(call.x.dtype(), [&]<class T>() {
    for_float_type(call.sum.dtype(), [&]<class Sum>() {
      const T* in = call.x.data<T>();
      Sum* out = call.sum.mutable_data<Sum>();
      parallel_ranges(C, columns, [=, adds = call.accumulate](int64_t begin, int64_t end) {
        double total[columns] = {};
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t c = begin; c < end; ++c) total[c - begin] += to_computing(in[row * C + c]);
        }
        for (int64_t c = begin; c < end; ++c) {
          const Computing<Sum> before = adds ? to_computing(out[c]) : 0;
          out[c] = from_computing<Sum>(before + static_cast<Computing<Sum>>(total[c - begin]));
        }
      });
    });
  });
}

REGISTER_KERNEL(gemm, cpu, "naive", {.run = gemm_naive, .supported = takes_f32_or_f64, .rank = -10, .layout = "rows"});
REGISTER_KERNEL(column_sum, cpu, "simple", {.run = column_sum_cpu, .supported = [](const ColumnSum& call) {
                                              return is_float(call.x) && is_same_or_f32(call.x, call.sum);
                                            }});

}  // namespace
}  // namespace hs
