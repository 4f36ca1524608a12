// Rung 2 of gemm on the CPU: Eigen's product, for f32 and f64.
#include <algorithm>

#include "kernels/cpu/eigen.h"
#include "kernels/cpu/elements.h"
#include "kernels/gemm/epilogue.h"

namespace hs {
namespace {

// Eigen's product on blocks of rows of C. The block boundaries depend only on M.
void gemm_eigen(const Gemm& call) {
  const GemmOptions& options = call.options;
  prepare_eigen();
  const int64_t M = call.c.shape()[0], N = call.c.shape()[1];
  const int64_t K = call.a.shape()[options.transpose_a ? 0 : 1];
  const int64_t block = std::max<int64_t>(32, (M + 15) / 16);
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
    });
  });
  if (options.epilogue != Epilogue::none) apply_epilogue(call);
}

REGISTER_KERNEL(gemm, cpu, "eigen", {.run = gemm_eigen, .supported = takes_f32_or_f64, .layout = "rows"});

}  // namespace
}  // namespace hs
