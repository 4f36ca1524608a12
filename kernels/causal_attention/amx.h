// causal_attention for bf16 on tiles: the "amx" variant, 32 queries at a time. As in kernels/causal_attention/
// streaming.cpp, a thread has a slice, and rows of S exist only for the queries at hand; but they are whole rows, so
// that no running maximum is needed. Products, with what is summed over in pairs or rows as tiles want it:
//
//   S = q k'   dP = dy v'      over D: k and v as cells of two columns, (D / 2, keys)
//   y = P v    dq = dS k       over keys: P and dS as rows, v and k as pairs of rows, (keys / 2, D)
//   dk' = q' dS   dv' = dy' P  over the queries: dS and P as pairs of rows, (16, keys); sums stay (D, keys)
//
// S and dP are sums of exact products. P and dS, which are f32, are split in two bf16 numbers each (kernels/
// causal_attention/rows.h): nothing is rounded to bf16 but y and dqkv. Internal to amx.cpp and its test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/causal_attention/rows.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/elements.h"

namespace hs::amx {

// Of P, split in two bf16 numbers, 2^-18 may be lost: 64 u, which means of v of up to one are then off by.
inline constexpr double attention_growth = 8;  // times the 8 u of other variants

inline constexpr int64_t strip = 32;  // queries

// Packed copies of a thread. Rows of `keys` are longer than that: cache lines of rows 4 KiB apart compete.
struct AttentionMemory : Parts {
  const AttentionSizes& s;
  const int64_t keys = round_up(s.T, 32), width = round_up(s.D, 32), row = keys + 32;
  const int64_t in_pairs = strip / 2 * width;
  uint16_t* rows = take<uint16_t>(keys * width);                                             // (keys, width)
  uint16_t *q = take<uint16_t>(strip * width), *dy = take<uint16_t>(strip * width);          // (strip, width)
  uint16_t *high = take<uint16_t>(strip * row), *low = take<uint16_t>(strip * row);          // (strip, row)
  Cell *k_cells = take<Cell>(width / 2 * row), *v_cells = take<Cell>(width / 2 * row);       // (width / 2, row)
  Cell *k_pairs = take<Cell>(keys / 2 * width), *v_pairs = take<Cell>(keys / 2 * width);     // (keys / 2, width)
  Cell *pairs_high = take<Cell>(strip / 2 * row), *pairs_low = take<Cell>(strip / 2 * row);  // (strip / 2, row)
  Cell* pairs = take<Cell>(in_pairs);                                                        // (strip / 2, width)
  Cell *q_columns = take<Cell>(in_pairs), *dy_columns = take<Cell>(in_pairs);                // (width, strip / 2)
  float *S = take<float>(strip * row), *dP = take<float>(strip * row);                       // (strip, row)
  float* sums = take<float>(strip * width);                                                  // (strip, width)
  float *dk = take<float>(width * row), *dv = take<float>(width * row);                      // (width, row)
  float* gradient = take<float>(keys * width);                                               // (keys, width)
};

// `rows` rows of D numbers, `stride` apart; zeros up to (padded_rows, width).
inline void copy_rows(const BFloat16* from, int64_t stride, int64_t rows, int64_t D, uint16_t* to, int64_t padded_rows,
                      int64_t width) {
  for (int64_t i = 0; i < padded_rows; ++i, from += stride, to += width) {
    const int64_t valid = i < rows ? D : 0;
    if (valid > 0) std::memcpy(to, from, static_cast<size_t>(valid) * sizeof *to);
    std::fill(to + valid, to + width, uint16_t{0});
  }
}

// (keys, width) -> cells of two columns, (width / 2, row).
inline void to_cells(const AttentionMemory& m, Cell* to) {
  transpose(reinterpret_cast<const Cell*>(m.rows), m.width / 2, m.keys, m.width / 2, to, m.row);
}

// (strip, width) -> (width, strip) as cells of two queries.
inline void to_columns(const AttentionMemory& m, const uint16_t* from, Cell* to) {
  interleave_rows(from, m.width, strip, m.width, m.pairs, m.width);
  transpose(m.pairs, m.width, strip / 2, m.width, to, strip / 2);
}

// C (32 rows, columns) = sum over A's of A B, or += if `add`; columns and depth are multiples of 32. a: rows of `depth`
// bf16; b: (depth / 2, columns) pairs; strides in elements. low: a second A, or B, of the same layout, or nullptr.
template <class Tiles>
void multiply(const uint16_t* a, const uint16_t* low_a, int64_t a_row, const Cell* b, const Cell* low_b, int64_t b_row,
              int64_t columns, int64_t depth, float* c, int64_t c_row, bool add) {
  using Sums = Block<Tiles, 2, 2>;
  for (int64_t n = 0; n < columns; n += 32) {
    const auto accumulate = [=](const uint16_t* left, const Cell* right) {
      for (int64_t k = 0; k < depth; k += tile_depth) {
        Sums::multiply(left + k, a_row * 2, 16 * a_row * 2, right + k / 2 * b_row + n, b_row * 4, 64);
      }
    };
    if (add) {
      Sums::load_sums(c + n, c_row * 4, 16 * c_row);
    } else {
      Sums::zero_sums();
    }
    accumulate(a, b);
    if (low_a) accumulate(low_a, b);
    if (low_b) accumulate(a, low_b);
    Sums::store_sums(c + n, c_row * 4, 16 * c_row);
  }
}

// S of a strip, or dP: (strip, keys) = q k'.
template <class Tiles>
void multiply_rows(const AttentionMemory& m, const uint16_t* q, const Cell* cells, int64_t keys, float* S) {
  multiply<Tiles>(q, nullptr, m.width, cells, nullptr, m.row, keys, m.width, S, m.row, false);
}

// Rows (valid, width), times factor(row), become bf16 rows of D numbers, `stride` apart. Overwrites m.rows.
template <class Factor>
void store_rows(const AttentionMemory& m, float* from, int64_t valid, int64_t D, const Factor& factor, BFloat16* to,
                int64_t stride) {
  for (int64_t r = 0; r < valid; ++r) {
    const float f = factor(r);
    for (int64_t d = 0; d < m.width; ++d) from[r * m.width + d] *= f;
  }
  BFloat16* rounded = reinterpret_cast<BFloat16*>(m.rows);
  narrow(from, rounded, valid * m.width);
  for (int64_t r = 0; r < valid; ++r) std::copy_n(rounded + r * m.width, D, to + r * stride);
}

template <class Tiles>
void attend(const AttentionSizes& size, const AttentionMemory& m, const BFloat16* q, float* log_sums, BFloat16* y,
            const BFloat16*) {
  const Session<Tiles> session;
  const AttentionRows& row_functions = attention_rows();
  const int64_t stride = 3 * size.C;
  copy_rows(q + size.C, stride, size.T, size.D, m.rows, m.keys, m.width);
  to_cells(m, m.k_cells);
  copy_rows(q + 2 * size.C, stride, size.T, size.D, m.rows, m.keys, m.width);
  interleave_rows(m.rows, m.width, m.keys, m.width, m.v_pairs, m.width);
  for (int64_t i = 0; i < size.T; i += strip) {
    const int64_t valid = std::min(strip, size.T - i), keys = i + strip;
    float largest[strip], sum[strip];
    copy_rows(q + i * stride, stride, valid, size.D, m.q, strip, m.width);
    multiply_rows<Tiles>(m, m.q, m.k_cells, keys, m.S);
    for (int64_t r = 0; r < strip; ++r) {
      float* S = m.S + r * m.row;
      row_functions.exponentials(S, i + r + 1, keys, size.scale(), largest[r], sum[r]);
      row_functions.split_row(S, keys, m.high + r * m.row, m.low + r * m.row);
    }
    multiply<Tiles>(m.high, m.low, m.row, m.v_pairs, nullptr, m.width, m.width, keys, m.sums, m.width, false);
    const auto normalize = [&](int64_t r) { return 1 / sum[r]; };
    store_rows(m, m.sums, valid, size.D, normalize, y + i * size.C, size.C);
    for (int64_t r = 0; r < valid; ++r) log_sums[i + r] = largest[r] + std::log(sum[r]);
  }
}

template <class Tiles>
void attend_backward(const AttentionSizes& size, const AttentionMemory& m, const BFloat16* q, const float* log_sums,
                     const BFloat16* dy, BFloat16* dq, const BFloat16*, const BFloat16*) {
  const Session<Tiles> session;
  const AttentionRows& row_functions = attention_rows();
  const int64_t stride = 3 * size.C, half = strip / 2;
  const auto scale = [&](int64_t) { return size.scale(); };
  copy_rows(q + size.C, stride, size.T, size.D, m.rows, m.keys, m.width);
  to_cells(m, m.k_cells);
  interleave_rows(m.rows, m.width, m.keys, m.width, m.k_pairs, m.width);
  copy_rows(q + 2 * size.C, stride, size.T, size.D, m.rows, m.keys, m.width);
  to_cells(m, m.v_cells);
  std::fill_n(m.dk, m.width * m.row, 0.0f);
  std::fill_n(m.dv, m.width * m.row, 0.0f);
  // (width, keys) += columns (width, strip) times pairs (strip, keys).
  const auto add_columns = [&](const Cell* columns, int64_t keys, float* sums) {
    for (int64_t d = 0; d < m.width; d += 32) {
      multiply<Tiles>(reinterpret_cast<const uint16_t*>(columns + d * half), nullptr, strip, m.pairs_high, m.pairs_low,
                      m.row, keys, strip, sums + d * m.row, m.row, true);
    }
  };
  const auto split_pairs = [&](const float* values, int64_t keys) {
    for (int64_t r = 0; r < half; ++r) {
      const float* first = values + 2 * r * m.row;
      row_functions.split_pair(first, first + m.row, keys, m.pairs_high + r * m.row, m.pairs_low + r * m.row);
    }
  };
  for (int64_t i = 0; i < size.T; i += strip) {
    const int64_t valid = std::min(strip, size.T - i), keys = i + strip;
    copy_rows(q + i * stride, stride, valid, size.D, m.q, strip, m.width);
    copy_rows(dy + i * size.C, size.C, valid, size.D, m.dy, strip, m.width);
    to_columns(m, m.q, m.q_columns);
    to_columns(m, m.dy, m.dy_columns);
    multiply_rows<Tiles>(m, m.q, m.k_cells, keys, m.S);
    multiply_rows<Tiles>(m, m.dy, m.v_cells, keys, m.dP);
    for (int64_t r = 0; r < strip; ++r) {
      float *S = m.S + r * m.row, *dP = m.dP + r * m.row;
      if (r >= valid) {
        std::fill_n(S, keys, 0.0f);
        std::fill_n(dP, keys, 0.0f);
      } else {
        row_functions.differentiate(S, dP, i + r + 1, keys, size.scale(), log_sums[i + r]);
      }
      row_functions.split_row(dP, keys, m.high + r * m.row, m.low + r * m.row);
    }
    multiply<Tiles>(m.high, m.low, m.row, m.k_pairs, nullptr, m.width, m.width, keys, m.sums, m.width, false);
    store_rows(m, m.sums, valid, size.D, scale, dq + i * stride, stride);
    split_pairs(m.S, keys);
    add_columns(m.dy_columns, keys, m.dv);
    split_pairs(m.dP, keys);
    add_columns(m.q_columns, keys, m.dk);
  }
  const auto store_gradient = [&](const float* sums, const auto& factor, BFloat16* to) {
    transpose(reinterpret_cast<const Cell*>(sums), m.row, m.width, m.keys, reinterpret_cast<Cell*>(m.gradient),
              m.width);
    store_rows(m, m.gradient, size.T, size.D, factor, to, stride);
  };
  store_gradient(m.dk, scale, dq + size.C);
  store_gradient(
      m.dv, [](int64_t) { return 1.0f; }, dq + 2 * size.C);
}

template <class Tiles>
void attention_forward(const CausalAttentionForward& call, Tensor& workspace) {
  attend_slices<AttentionMemory, BFloat16>(call, workspace, attend<Tiles>);
}
template <class Tiles>
void attention_backward(const CausalAttentionBackward& call, Tensor& workspace) {
  attend_slices<AttentionMemory, BFloat16>(call, workspace, attend_backward<Tiles>);
}
template <class Call>
int64_t attention_workspace(const Call& call) {
  return slices_workspace<AttentionMemory>(call);
}

template <class Call>
bool takes_attention(const Call& call) {
  return call.qkv.dtype() == DType::bf16;
}

}  // namespace hs::amx
