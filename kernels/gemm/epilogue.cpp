#include "kernels/gemm/epilogue.h"

#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
namespace hs::HS_ISA {
namespace {

template <class Real>
void add_row(const Real* row, int64_t columns, double* total) {
  for (int64_t j = 0; j < columns; ++j) total[j] += row[j];  // in vectors
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/gemm/epilogue.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

void sum_columns(const Tensor& c, Tensor& sums) {
  constexpr int64_t columns_each = 64;
  const int64_t M = c.shape()[0], N = c.shape()[1];
  for_float_type(c.dtype(), [&]<class T>() {
    for_float_type(sums.dtype(), [&]<class Sum>() {
      const T* rows = c.data<T>();
      Sum* to = sums.mutable_data<Sum>();
      parallel_ranges(N, columns_each, [=](int64_t begin, int64_t end) {
        using Real = Computing<T>;
        using Rounded = Computing<Sum>;
        const auto add = HS_FOR_THIS_CPU(add_row<Real>);
        double total[columns_each] = {};
        Block<T> block;
        for (int64_t row = 0; row < M; ++row) {
          const Real* values = block.read(rows + row * N + begin, end - begin);
          add(values, end - begin, total);
        }
        for (int64_t j = 0; j < end - begin; ++j) {
          to[begin + j] = from_computing<Sum>(static_cast<Rounded>(total[j]));
        }
      });
    });
  });
}

void apply_epilogue(const Gemm& call) {
  const int64_t N = call.c.shape()[1], bytes = gemm_mask_row(N);
  const bool is_forward = call.options.epilogue == Epilogue::relu;
  uint8_t* mask = is_forward ? call.mask.mutable_data<uint8_t>() : nullptr;
  const uint8_t* saved = is_forward ? nullptr : call.saved_mask.data<uint8_t>();
  for_f32_or_f64(call.c.dtype(), [&]<class T>() {
    T* c = call.c.mutable_data<T>();
    parallel(call.c.shape()[0], [=](int64_t m, int) {
      is_forward ? relu_row(N, c + m * N, mask + m * bytes, bytes) : apply_mask(N, saved + m * bytes, c + m * N);
    });
  });
  if (!is_forward) sum_columns(call.c, call.bias_gradient);  // of an empty C too
}

}  // namespace hs

#endif
