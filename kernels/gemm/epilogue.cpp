#include "kernels/gemm/epilogue.h"

#include "kernels/cpu/elements.h"

namespace hs {

void sum_columns(const Tensor& c, Tensor& sums) {
  constexpr int64_t columns_each = 64;
  const int64_t M = c.shape()[0], N = c.shape()[1];
  for_float_type(c.dtype(), [&]<class T>() {
    for_float_type(sums.dtype(), [&]<class Sum>() {
      const T* rows = c.data<T>();
      Sum* to = sums.mutable_data<Sum>();
      parallel_ranges(N, columns_each, [=](int64_t begin, int64_t end) {
        double total[columns_each] = {};
        Block<T> block;
        for (int64_t row = 0; row < M; ++row) {
          const Computing<T>* values = block.read(rows + row * N + begin, end - begin);
          for (int64_t j = 0; j < end - begin; ++j) total[j] += values[j];
        }
        for (int64_t j = 0; j < end - begin; ++j) {
          to[begin + j] = from_computing<Sum>(static_cast<Computing<Sum>>(total[j]));
        }
      });
    });
  });
}

}  // namespace hs
