#include "kernels/gemm/finish.h"

#include <cstring>

#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set

namespace hs::HS_ISA {
namespace {

using blocked::Finish, blocked::tile_columns;

// A row of up to 64 columns in whole vectors: those beyond the matrix are computed as well, and not stored.
template <class T, bool whole>
void finish_rows(const Finish& f, int64_t m, int64_t n, int64_t rows, int64_t columns, float* sums) {
  constexpr bool narrows = stores_16_bits<T>;
  if (whole) columns = tile_columns;  // known to the compiler: loops over vectors disappear
  alignas(64) float bias[tile_columns] = {};
  alignas(64) float before[tile_columns];
  if (f.bias) copy_elements(static_cast<const T*>(f.bias) + n, columns, bias);
  const int64_t mask_row = gemm_mask_row(f.N);
  const uint64_t valid = ~uint64_t{0} >> (tile_columns - columns);
  for (int64_t i = m; i < m + rows; ++i, sums += tile_columns) {
    T* to = static_cast<T*>(f.c) + i * f.N + n;
    Vec x[tile_columns / lanes];
    const auto for_vectors = [&](const auto& body) {
      for (int64_t j = 0; j < columns; j += lanes) x[j / lanes] = body(x[j / lanes], j);
    };
    for_vectors([&](Vec, int64_t j) { return load(sums + j) * f.alpha; });
    if (f.beta != 0) {
      const float* values = as_computing(to, columns, before);
      for_vectors([&](Vec v, int64_t j) { return v + load_first(values + j, columns - j) * f.beta; });
    }
    if (f.bias) for_vectors([&](Vec v, int64_t j) { return v + load(bias + j); });
    if (f.mask) {  // bit j % 8 of byte j / 8 for column j, and zeros to the end of the row
      uint64_t bits = 0;
      for_vectors([&](Vec v, int64_t j) {
        v = v <= 0 ? Vec{} : v;  // false for NaN, which is kept
        bits |= static_cast<uint64_t>(nonzero_bits(v)) << j;
        return v;
      });
      bits &= valid;
      uint8_t* row = f.mask + i * mask_row;
      std::memcpy(row + n / 8, &bits, sizeof bits);
      if (n + columns == f.N) std::fill(row + n / 8 + sizeof bits, row + mask_row, uint8_t{0});
    }
    if (f.saved_mask) {
      uint64_t bits;
      std::memcpy(&bits, f.saved_mask + i * mask_row + n / 8, sizeof bits);
      for_vectors([&](Vec v, int64_t j) { return where_bits(static_cast<uint32_t>(bits >> j), v); });
    }
    if constexpr (narrows) {
      for_vectors([&](Vec v, int64_t j) { return store(sums + j, v), v; });
      narrow(sums, to, columns);
    } else {
      for_vectors([&](Vec v, int64_t j) { return store_first(to + j, v, columns - j), v; });
    }
  }
}

template <class T>
void finish(const Finish& f, int64_t m, int64_t n, int64_t rows, int64_t columns, float* sums) {
  (columns == tile_columns ? finish_rows<T, true> : finish_rows<T, false>)(f, m, n, rows, columns, sums);
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
      is_plain(is_f32(call.c) && alpha == 1 && beta == 0 && !call.bias.defined() &&
               call.options.epilogue == Epilogue::none),
      mask(call.options.epilogue == Epilogue::relu ? call.mask.mutable_data<uint8_t>() : nullptr),
      saved_mask(call.options.epilogue == Epilogue::relu_backward ? call.saved_mask.data<uint8_t>() : nullptr),
      N(call.c.shape()[1]) {
  for_f32_or_16_bits(call.c.dtype(), [&]<class T>() {
    bias = call.bias.defined() ? call.bias.data<T>() : nullptr;
    c = call.c.mutable_data<T>();
    element_bytes = sizeof(T);
    run = HS_FOR_THIS_CPU(finish<T>);
  });
}

}  // namespace hs::blocked

#endif
