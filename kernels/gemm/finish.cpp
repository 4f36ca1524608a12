#include "kernels/gemm/finish.h"

#include <cstring>

#include "kernels/cpu/elements.h"

#ifdef HS_ISA

namespace hs::HS_ISA {
namespace {

using blocked::Finish, blocked::tile_columns;

// 64 columns at once, in whole vectors: those beyond the matrix are computed as well, and not stored.
template <class T>
void finish(const Finish& f, int64_t m, int64_t n, int64_t rows, int64_t columns, float* sums) {
  constexpr bool narrows = stores_16_bits<T>;
  alignas(64) float bias[tile_columns] = {}, before[tile_columns] = {};
  const auto read = [=](const T* from, float* to) {
    if constexpr (narrows) {
      widen(from, to, columns);
    } else {
      std::copy_n(from, columns, to);
    }
  };
  if (f.bias) read(static_cast<const T*>(f.bias) + n, bias);
  const int64_t mask_row = gemm_mask_row(f.N);
  const uint64_t valid = ~uint64_t{0} >> (tile_columns - columns);
  for (int64_t i = m; i < m + rows; ++i, sums += tile_columns) {
    T* to = static_cast<T*>(f.c) + i * f.N + n;
    if (f.beta != 0) read(to, before);
    uint64_t bits = ~uint64_t{0};
    if (f.saved_mask) std::memcpy(&bits, f.saved_mask + i * mask_row + n / 8, sizeof bits);
    uint64_t positive = 0;
    for (int64_t j = 0; j < columns; j += lanes) {
      Vec x = load(sums + j) * f.alpha;
      if (f.beta != 0) x += load(before + j) * f.beta;
      if (f.bias) x += load(bias + j);
      if (f.mask) {
        x = x <= 0 ? Vec{} : x;  // false for NaN, which is kept
        positive |= static_cast<uint64_t>(nonzero_bits(x)) << j;
      }
      if (f.saved_mask) x = where_bits(static_cast<uint32_t>(bits >> j), x);
      if constexpr (narrows) {
        store(sums + j, x);
      } else {
        store_first(to + j, x, columns - j);
      }
    }
    if constexpr (narrows) narrow(sums, to, columns);
    if (f.mask) {  // bit j % 8 of byte j / 8 for column j, and zeros to the end of the row
      positive &= valid;
      uint8_t* row = f.mask + i * mask_row;
      std::memcpy(row + n / 8, &positive, sizeof positive);
      if (n + columns == f.N) std::fill(row + n / 8 + sizeof positive, row + mask_row, uint8_t{0});
    }
  }
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/gemm/finish.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs::blocked {

Finish::Finish(const Gemm& call)
    : alpha(call.options.alpha),
      beta(call.options.beta),
      mask(call.options.epilogue == Epilogue::relu ? call.mask.mutable_data<uint8_t>() : nullptr),
      saved_mask(call.options.epilogue == Epilogue::relu_backward ? call.saved_mask.data<uint8_t>() : nullptr),
      N(call.c.shape()[1]) {
  for_float_type(call.c.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      bias = call.bias.defined() ? call.bias.data<T>() : nullptr;
      c = call.c.mutable_data<T>();
      run = HS_FOR_THIS_CPU(finish<T>);
    }
  });
}

}  // namespace hs::blocked

#endif
