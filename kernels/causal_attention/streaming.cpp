// causal_attention without T x T matrices, on vectors, in f32 (f16 and bf16 are widened): variant "streaming". A thread
// computes a slice (one head of one sequence) from beginning to end, 16 queries at a time:
//
//                keys 0..63   64..127     forward: block by block, the maximum m and the sum l of each row so far, and
//   16 queries  [ S block  ][ S block ]   y = sum of exp(S - m) v. If a block has a larger maximum, what was summed
//               [          ][        \]   before is scaled by exp(old m - new m). At the end y / l; L = m + log l.
//                                         backward: P = exp(S - L) of whole rows, then dP, delta, dS; the 16 queries
//                                         finish their dq and add to dk and dv of all keys before them.
//
// The running maximum: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; attention with it:
// Dao et al., "FlashAttention", NeurIPS 2022. Keys after the last of the 16 queries are never looked at. Of those among
// the 16, P is 0 where the key is later. Everything is a product of small packed matrices: multiply() below. s is
// multiplied into the packed q.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/causal_attention/rows.h"
#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/cpu/strip.h"
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {
namespace {

// A (rows, steps), at a[row * a_row + step * a_step]; B (steps, columns) and C (rows, columns), row-major.
struct Product {
  int64_t rows, columns, steps;  // rows and columns are multiples of 16
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
};

// 16 rows of a few columns, as many sums at a time as fit into registers with a row of B and an A.
template <int vectors>
void multiply_columns(const Product& p, int64_t first, int64_t column, bool add) {
  const auto strip = [&]<int rows>(std::integral_constant<int, rows>, int64_t row) {
    multiply_strip<rows, vectors>(p.a + row * p.a_row, p.a_row, p.a_step, p.b + column, p.b_row, p.steps,
                                  p.c + row * p.c_row + column, p.c_row, add);
  };
  if constexpr (registers == 32) {
    strip(std::integral_constant<int, 8>(), first);
    strip(std::integral_constant<int, 8>(), first + 8);
  } else {
    strip(std::integral_constant<int, 6>(), first);
    strip(std::integral_constant<int, 5>(), first + 6);
    strip(std::integral_constant<int, 5>(), first + 11);
  }
}

// C = A B, or C += A B.
void multiply(const Product& p, bool add) {
  for (int64_t column = 0; column < p.columns; column += 2 * lanes) {
    const bool two = p.columns - column >= 2 * lanes;
    for (int64_t row = 0; row < p.rows; row += 16) {
      (two ? multiply_columns<2> : multiply_columns<1>)(p, row, column, add);
    }
  }
}

// `rows` rows of D numbers, `stride` apart, times `factor`; zeros up to (padded_rows, width).
template <class T>
void pack_rows(const T* from, int64_t stride, int64_t rows, int64_t D, float factor, float* to, int64_t padded_rows,
               int64_t width) {
  for (int64_t i = 0; i < padded_rows; ++i, from += stride, to += width) {
    if (i >= rows) {
      std::fill_n(to, width, 0.0f);
      continue;
    }
    copy_elements(from, D, to);
    for (int64_t d = 0; d < D; ++d) to[d] *= factor;
    std::fill(to + D, to + width, 0.0f);
  }
}

// (keys, width) -> blocks of key_block keys, each (width, key_block).
void transpose_blocks(const float* from, int64_t keys, int64_t width, float* to) {
  for (int64_t j = 0; j < keys; j += key_block) {
    transpose(reinterpret_cast<const Cell*>(from + j * width), width, std::min(key_block, keys - j), width,
              reinterpret_cast<Cell*>(to + j * width), key_block);
  }
}

// The 16 queries of a forward pass: maximum and sum of exp(S - maximum) so far, and the factor of a new maximum.
struct Softmax {
  alignas(64) float largest[query_rows], factor[query_rows];
  Vec sum[query_rows] = {};
  Softmax() { std::fill_n(largest, query_rows, -INFINITY); }

  // S, a block (16, keys), becomes exp(S - maximum), and 0 from key `visible` of the first row on, one later per row.
  void add_block(float* S, int64_t visible, int64_t keys) {
    float before[query_rows];
    std::copy_n(largest, query_rows, before);
    for (int64_t r = 0; r < query_rows; ++r) {
      Vec most = broadcast(largest[r]);
      for (int64_t j = 0; j < keys; j += lanes) {
        most = larger(first_or(load(S + r * key_block + j), visible + r - j, -INFINITY), most);
      }
      largest[r] = lane_max(most);
    }
    for (int64_t r = 0; r < query_rows; r += lanes) store(factor + r, exp(load(before + r) - load(largest + r)));
    for (int64_t r = 0; r < query_rows; ++r) {
      const float maximum = largest[r];  // here and below: a store to S might change what is not local
      Vec total = sum[r] * factor[r];
      for (int64_t j = 0; j < keys; j += lanes) {
        const Vec p = exp(first_or(load(S + r * key_block + j), visible + r - j, -INFINITY) - maximum);
        store(S + r * key_block + j, p);
        total += p;
      }
      sum[r] = total;
    }
  }
};

// Packed copies of a thread; all matrices have rows and columns in multiples of 16.
struct ForwardMemory : Parts {
  const AttentionSizes& s;
  const int64_t keys = round_up(s.T, 16), width = round_up(s.D, 16);
  float* k = take<float>(keys * width);                              // (keys, width)
  float* k_blocks = take<float>(round_up(keys, key_block) * width);  // (blocks, width, key_block)
  float* v = take<float>(keys * width);                              // (keys, width)
  float* q = take<float>(query_rows * width);                        // (query_rows, width)
  float* y = take<float>(query_rows * width);                        // (query_rows, width)
  float* S = take<float>(query_rows * key_block);                    // (query_rows, key_block)
};

template <class T>
void forward_slice(const AttentionSizes& size, const ForwardMemory& m, const T* q, float* log_sums, T* y) {
  const int64_t width = m.width, stride = 3 * size.C;
  float *sum = m.y, *S = m.S;
  pack_rows(q + size.C, stride, size.T, size.D, 1, m.k, m.keys, width);
  pack_rows(q + 2 * size.C, stride, size.T, size.D, 1, m.v, m.keys, width);
  transpose_blocks(m.k, m.keys, width, m.k_blocks);
  for (int64_t i = 0; i < size.T; i += query_rows) {
    const int64_t valid = std::min(query_rows, size.T - i), keys = i + query_rows;
    pack_rows(q + i * stride, stride, valid, size.D, size.scale(), m.q, query_rows, width);
    Softmax softmax;
    for (int64_t j = 0; j < keys; j += key_block) {
      const int64_t count = std::min(key_block, keys - j);
      multiply({query_rows, count, width, m.q, width, 1, m.k_blocks + j * width, key_block, S, key_block}, false);
      softmax.add_block(S, i + 1 - j, count);
      for (int64_t r = 0; j > 0 && r < query_rows; ++r) {
        for (int64_t d = 0; d < width; d += lanes) {
          store(sum + r * width + d, load(sum + r * width + d) * softmax.factor[r]);
        }
      }
      multiply({query_rows, width, count, S, key_block, 1, m.v + j * width, width, sum, width}, j > 0);
    }
    for (int64_t r = 0; r < valid; ++r) {
      const float total = lane_sum(softmax.sum[r]);
      for (int64_t d = 0; d < width; d += lanes) store(sum + r * width + d, load(sum + r * width + d) / total);
      store_block(sum + r * width, y + (i + r) * size.C, size.D);
      log_sums[i + r] = softmax.largest[r] + std::log(total);
    }
  }
}

struct BackwardMemory : Parts {
  const AttentionSizes& s;
  const int64_t keys = round_up(s.T, 16), width = round_up(s.D, 16);
  const int64_t in_blocks = round_up(keys, key_block) * width, of_queries = query_rows * width;
  const int64_t row = keys + 16;         // were it a multiple of 4 KiB, rows would compete for cache lines
  float* k = take<float>(keys * width);  // (keys, width)
  float *k_blocks = take<float>(in_blocks), *v_blocks = take<float>(in_blocks);  // (blocks, width, key_block)
  float *dk = take<float>(keys * width), *dv = take<float>(keys * width);        // (keys, width)
  float *q = take<float>(of_queries), *dy = take<float>(of_queries), *dq = take<float>(of_queries);
  float *P = take<float>(query_rows * row), *dS = take<float>(query_rows * row);  // (query_rows, row)
};

// P = exp(factor S - log_sum), 0 from key `visible` on, and dS = P (dP - delta) replace S and dP of one query.
void differentiate_row(float* S, float* dP, int64_t visible, int64_t keys, float factor, float log_sum) {
  Vec sum = {};
  for (int64_t j = 0; j < keys; j += lanes) {
    const Vec p = exp(first_or(load(S + j), visible - j, -INFINITY) * factor - log_sum);
    store(S + j, p);
    sum = fma(p, load(dP + j), sum);
  }
  const float delta = lane_sum(sum);
  for (int64_t j = 0; j < keys; j += lanes) store(dP + j, load(S + j) * (load(dP + j) - delta));
}

template <class T>
void backward_slice(const AttentionSizes& size, const BackwardMemory& m, const T* q, const float* log_sums, const T* dy,
                    T* dq) {
  const int64_t width = m.width, stride = 3 * size.C, row = m.row;
  pack_rows(q + size.C, stride, size.T, size.D, 1, m.k, m.keys, width);
  transpose_blocks(m.k, m.keys, width, m.k_blocks);
  pack_rows(q + 2 * size.C, stride, size.T, size.D, 1, m.dv, m.keys, width);  // v for a moment
  transpose_blocks(m.dv, m.keys, width, m.v_blocks);
  std::fill_n(m.dk, m.keys * width, 0.0f);
  std::fill_n(m.dv, m.keys * width, 0.0f);
  for (int64_t i = 0; i < size.T; i += query_rows) {
    const int64_t valid = std::min(query_rows, size.T - i), keys = i + query_rows;
    pack_rows(q + i * stride, stride, valid, size.D, size.scale(), m.q, query_rows, width);
    pack_rows(dy + i * size.C, size.C, valid, size.D, 1, m.dy, query_rows, width);
    for (int64_t j = 0; j < keys; j += key_block) {
      const int64_t count = std::min(key_block, keys - j);
      multiply({query_rows, count, width, m.q, width, 1, m.k_blocks + j * width, key_block, m.P + j, row}, false);
      multiply({query_rows, count, width, m.dy, width, 1, m.v_blocks + j * width, key_block, m.dS + j, row}, false);
    }
    for (int64_t r = 0; r < valid; ++r) {
      differentiate_row(m.P + r * row, m.dS + r * row, i + r + 1, keys, 1, log_sums[i + r]);
    }
    multiply({query_rows, width, keys, m.dS, row, 1, m.k, width, m.dq, width}, false);
    multiply({keys, width, valid, m.dS, 1, row, m.q, width, m.dk, width}, true);
    multiply({keys, width, valid, m.P, 1, row, m.dy, width, m.dv, width}, true);
    for (int64_t r = 0; r < valid; ++r) {
      for (int64_t d = 0; d < width; d += lanes) {
        store(m.dq + r * width + d, load(m.dq + r * width + d) * size.scale());
      }
      store_block(m.dq + r * width, dq + (i + r) * stride, size.D);
    }
  }
  for (int64_t j = 0; j < size.T; ++j) {
    store_block(m.dk + j * width, dq + size.C + j * stride, size.D);
    store_block(m.dv + j * width, dq + 2 * size.C + j * stride, size.D);
  }
}

void forward(const CausalAttentionForward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.qkv.dtype(),
                     [&]<class T>() { attend_slices<ForwardMemory, T>(call, workspace, forward_slice<T>); });
}
void backward(const CausalAttentionBackward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.qkv.dtype(),
                     [&]<class T>() { attend_slices<BackwardMemory, T>(call, workspace, backward_slice<T>); });
}

// ---- for kernels/causal_attention/amx.h ----

void row_exponentials(float* S, int64_t visible, int64_t keys, float factor, float& largest, float& sum) {
  Vec most = broadcast(-INFINITY), total = {};
  for (int64_t j = 0; j < visible; j += lanes) most = larger(first_or(load(S + j), visible - j, -INFINITY), most);
  const float maximum = largest = lane_max(most) * factor;
  for (int64_t j = 0; j < keys; j += lanes) {
    const Vec p = exp(first_or(load(S + j), visible - j, -INFINITY) * factor - maximum);
    store(S + j, p);
    total += p;
  }
  sum = lane_sum(total);
}

using Words = uint32_t __attribute__((vector_size(HS_VECTOR_BYTES)));
using Halves = uint16_t __attribute__((vector_size(HS_VECTOR_BYTES / 2)));

// Two bf16 numbers, in the upper halves. Ties are rounded away from zero, which does not matter: what is left over of
// the first is the second.
struct Split {
  Words high, low;
  explicit Split(Vec v) : high(rounded(v)), low(rounded(v - __builtin_bit_cast(Vec, high))) {}
  static Words rounded(Vec v) { return (__builtin_bit_cast(Words, v) + 0x8000u) & 0xffff0000u; }
};

void split_row(const float* values, int64_t count, uint16_t* high, uint16_t* low) {
  for (int64_t j = 0; j < count; j += lanes) {
    const Split split(load(values + j));
    const Halves high_halves = __builtin_convertvector(split.high >> 16, Halves);
    const Halves low_halves = __builtin_convertvector(split.low >> 16, Halves);
    std::memcpy(high + j, &high_halves, sizeof high_halves);
    std::memcpy(low + j, &low_halves, sizeof low_halves);
  }
}

void split_pair(const float* first, const float* second, int64_t count, Cell* high, Cell* low) {
  for (int64_t j = 0; j < count; j += lanes) {
    const Split a(load(first + j)), b(load(second + j));
    const Words highs = a.high >> 16 | b.high;
    const Words lows = a.low >> 16 | b.low;
    std::memcpy(high + j, &highs, sizeof highs);
    std::memcpy(low + j, &lows, sizeof lows);
  }
}

constexpr AttentionRows row_functions = {row_exponentials, differentiate_row, split_row, split_pair};

int64_t forward_workspace(const CausalAttentionForward& call) { return slices_workspace<ForwardMemory>(call); }
int64_t backward_workspace(const CausalAttentionBackward& call) { return slices_workspace<BackwardMemory>(call); }

}  // namespace
}  // namespace hs::HS_ISA

#else

namespace hs {
namespace {

constexpr int64_t query_rows = 16, key_block = 64;

}  // namespace
}  // namespace hs

#define HS_SOURCE "kernels/causal_attention/streaming.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

const AttentionRows& attention_rows() { return HS_FOR_THIS_CPU(row_functions); }

namespace {

REGISTER_KERNEL(causal_attention_forward, cpu, "streaming",
                {.run = HS_DISPATCHED(forward),
                 .supported = takes_f32_or_16_bits,
                 .workspace = HS_DISPATCHED(forward_workspace),
                 .rank = 10});
REGISTER_KERNEL(causal_attention_backward, cpu, "streaming",
                {.run = HS_DISPATCHED(backward),
                 .supported = takes_f32_or_16_bits,
                 .workspace = HS_DISPATCHED(backward_workspace),
                 .rank = 10});

}  // namespace
}  // namespace hs
#endif
