// How the blocked variants of gemm turn finished sums into C: scaled, added to C and bias, through the epilogue,
// rounded once. In vectors; kernels/gemm/epilogue.h is the plain form. Internal to kernels/gemm/.
#pragma once

#include "kernels/gemm/epilogue.h"

namespace hs::blocked {

inline constexpr int64_t tile_columns = 64;  // of C, and floats between the rows of sums

struct Finish {
  explicit Finish(const Gemm& call);

  // Stores C's rows m .. m+rows-1, columns n .. n+columns-1. sums is (rows, tile_columns); it is overwritten.
  // REQUIRES: n is a multiple of tile_columns
  void operator()(int64_t m, int64_t n, int64_t rows, int64_t columns, float* sums) const {
    run(*this, m, n, rows, columns, sums);
  }

  // Where sums may lie from the first slice of K on, because they are C as they are: row m, column n of C, in f32. Else
  // nullptr. columns: what is stored at once
  float* in_place(int64_t m, int64_t n, int64_t columns) const {
    return is_plain && columns % 16 == 0 ? static_cast<float*>(c) + m * N + n : nullptr;
  }

  // Requests the same part of C.
  void prefetch(int64_t m, int64_t n, int64_t rows, int64_t columns) const {
    const char* from = static_cast<const char*>(c) + (m * N + n) * element_bytes;
    for (; rows > 0; --rows, from += N * element_bytes) {
      for (int64_t i = 0; i < columns * element_bytes; i += 64) __builtin_prefetch(from + i);
    }
  }

  float alpha, beta;
  bool is_plain;              // C is f32, and the product alone
  uint8_t* mask;              // or nullptr
  const uint8_t* saved_mask;  // or nullptr
  int64_t N;
  const void* bias;  // or nullptr; of C's dtype
  void* c;
  int64_t element_bytes;
  void (*run)(const Finish&, int64_t m, int64_t n, int64_t rows, int64_t columns, float* sums);
};

}  // namespace hs::blocked
