// causal_attention without T x T matrices, on vectors, in f32 (f16 and bf16 are widened): variant "streaming". A thread
// computes a slice (one head of one sequence) from beginning to end, 64 queries at a time. Scores lie key by key, those
// of all the queries side by side, so that a vector has as many queries, and what a softmax does along the keys needs
// nothing of other lanes:
//
//                64 queries           forward: block by block, the maximum m and the sum l of each query so far, and
//   keys 0..127  [ S block  ]         y = sum of exp(S - m) v. If a block has a larger maximum, what was summed before
//                [          ]         is scaled by exp(old m - new m). At the end y / l; L = m + log l.
//   128..255     [ \S block ]         backward: P = exp(S - L) of all keys, then dP, delta, dS; the 64 queries finish
//                [    \     ]         their dq and add to dk and dv of all keys before them.
//
// The running maximum: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; attention with it:
// Dao et al., "FlashAttention", NeurIPS 2022. Keys after the last of the 64 queries are never looked at, nor are tiles
// of 16 x 16 where each key is later than each query; in those that the diagonal crosses, P is 0 where the key is
// later. Everything is a product of small packed matrices: multiply() below. Exponentials are powers of two of the
// difference to m or L: of two large numbers, it is exact.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/causal_attention/rows.h"
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/cpu/strip.h"
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {
namespace {

constexpr float log2_e = 1.442695041f, ln_2 = 0.6931471806f;
constexpr int together = registers / 8;  // vectors of scores; divides 16

// A (rows, steps), at a[row * a_row + step * a_step]; B (steps, columns) and C (rows, columns), row-major.
struct Product {
  int64_t rows, columns;  // multiples of 16
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
};

struct Steps {
  int64_t begin, end;
};

// What a slice writes, and what the next one reads: requested while products are computed, a few lines a strip.
struct Later {
  Ahead written, read, gradient;
  void request() { written.request(), read.request(), gradient.request(); }
};

// 16 rows of a few columns, as many sums at a time as fit into registers with a row of B and an A.
template <int vectors, class StepsOf>
void multiply_columns(Later& later, const Product& p, int64_t first, int64_t column, bool add,
                      const StepsOf& steps_of) {
  const auto strip = [&]<int rows>(std::integral_constant<int, rows>, int64_t row) {
    const Steps steps = steps_of(row, rows);
    later.request();
    multiply_strip<rows, vectors>(p.a + row * p.a_row + steps.begin * p.a_step, p.a_row, p.a_step,
                                  p.b + steps.begin * p.b_row + column, p.b_row, steps.end - steps.begin,
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

// C = A B, or C += A B, over steps_of(row, rows) for the rows of a strip: outside of these, A is zero.
template <class StepsOf>
void multiply(Later& later, const Product& p, bool add, const StepsOf& steps_of) {
  for (int64_t column = 0; column < p.columns; column += 2 * lanes) {
    const bool two = p.columns - column >= 2 * lanes;
    for (int64_t row = 0; row < p.rows; row += 16) {
      if (two) {
        multiply_columns<2>(later, p, row, column, add, steps_of);
      } else {
        multiply_columns<1>(later, p, row, column, add, steps_of);
      }
    }
  }
}

// `rows` rows of D numbers, `stride` apart; zeros up to (padded_rows, width).
template <class T>
void pack_rows(const T* from, int64_t stride, int64_t rows, int64_t D, float* to, int64_t padded_rows, int64_t width) {
  for (int64_t i = 0; i < padded_rows; ++i, from += stride, to += width) {
    if (i >= rows) {
      std::fill_n(to, width, 0.0f);
    } else if constexpr (std::is_same_v<T, float>) {
      for (int64_t d = 0; d < width; d += lanes) store(to + d, load_first_or(from + d, D - d, 0));
    } else {
      copy_elements(from, D, to);
      std::fill(to + D, to + width, 0.0f);
    }
  }
}

// Rows of D numbers, times factor(row), to rows `stride` apart.
template <class T, class Factor>
void store_rows(float* from, int64_t width, int64_t rows, int64_t D, const Factor& factor, T* to, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i, from += width, to += stride) {
    const float f = factor(i);
    for (int64_t d = 0; d < D; d += lanes) {
      const Vec v = load(from + d) * f;
      if constexpr (std::is_same_v<T, float>) {
        store_first(to + d, v, D - d);
      } else {
        store(from + d, v);
      }
    }
    if constexpr (!std::is_same_v<T, float>) store_block(from, to, D);
  }
}

// Rows of queries, times `factor` -> (width, query_rows).
void transpose_rows(const float* from, int64_t rows, int64_t width, float factor, float* to) {
  transpose(reinterpret_cast<const Cell*>(from), width, rows, width, reinterpret_cast<Cell*>(to), query_rows);
  for (int64_t d = 0; d < width; ++d, to += query_rows) {
    for (int64_t i = 0; i < rows; i += lanes) store(to + i, load(to + i) * factor);
  }
}

// S of a block of keys and `columns` queries, the first of which is as late as key `diagonal` of the block. Tiles where
// all keys are later than all queries are left out.
void multiply_scores(Later& later, const float* k, int64_t width, int64_t D, int64_t keys, const float* q_columns,
                     int64_t columns, int64_t diagonal, float* S) {
  const auto all = [=](int64_t, int64_t) { return Steps{0, D}; };
  for (int64_t j = 0; j < keys; j += 16) {
    const int64_t c = std::max<int64_t>(0, j - diagonal);
    multiply(later,
             {16, columns - c, k + j * width, width, 1, q_columns + c, query_rows, S + j * query_rows + c, query_rows},
             false, all);
  }
}

// The scores of a vector of queries that are not to be seen become -inf. The first query sees `visible` keys, each
// other one more than that before it.
void hide_later(float* S, int64_t visible, int64_t keys) {
  Ints lane;
  for (int i = 0; i < lanes; ++i) lane[i] = i;
  for (int64_t j = visible; j < keys; ++j) {
    float* row = S + j * query_rows;
    store(row, lane > static_cast<int32_t>(j - visible) ? load(row) : broadcast(-INFINITY));
  }
}

// S of a vector of queries becomes exp(S - subtracted); calls body(place, value) for each key.
template <class Body>
void for_exponentials(float* S, int64_t keys, Vec subtracted, const Body& body) {
  for (int64_t j = 0; j < keys; j += together) {
    Vec p[together];
    HS_UNROLL for (int n = 0; n < together; ++n) { p[n] = (load(S + (j + n) * query_rows) - subtracted) * log2_e; }
    exp2(p);
    HS_UNROLL for (int n = 0; n < together; ++n) {
      store(S + (j + n) * query_rows, p[n]);
      body((j + n) * query_rows, p[n]);
    }
  }
}

// The queries of a forward pass: maximum and sum of exp(S - maximum) so far, and the factor of a new maximum.
struct Softmax {
  alignas(64) float largest[query_rows], factor[query_rows], sum[query_rows] = {};
  Softmax() { std::fill_n(largest, query_rows, -INFINITY); }

  // S, a block (keys, query_rows), becomes exp(S - maximum), and 0 where the key is later than the query.
  void add_block(float* S, int64_t diagonal, int64_t keys, int64_t columns) {
    for (int64_t c = 0; c < columns; c += lanes) {
      float* column = S + c;
      const int64_t seen = std::min(keys, round_up(diagonal + c + 1, 16));
      hide_later(column, diagonal + c + 1, seen);
      Vec most[together];
      HS_UNROLL for (Vec& v : most) v = broadcast(-INFINITY);
      for (int64_t j = 0; j < seen; j += together) {
        HS_UNROLL for (int n = 0; n < together; ++n) most[n] = larger(load(column + (j + n) * query_rows), most[n]);
      }
      const Vec before = load(largest + c);
      Vec maximum = most[0];
      HS_UNROLL for (int n = 1; n < together; ++n) maximum = larger(maximum, most[n]);
      maximum = larger(maximum, before);
      Vec change[1] = {(before - maximum) * log2_e};
      exp2(change);
      Vec total = load(sum + c) * change[0];
      for_exponentials(column, seen, maximum, [&](int64_t, Vec p) { total += p; });
      store(factor + c, change[0]);
      store(largest + c, maximum);
      store(sum + c, total);
    }
  }
};

// For normal numbers: their bits as an integer are nearly it, and what 2^that is off by has a logarithm near zero.
Vec log2(Vec x) {
  const Vec near = __builtin_convertvector(__builtin_bit_cast(Ints, x) - 0x3f800000, Vec) * 0x1p-23f;
  Vec power[1] = {-near};
  exp2(power);
  const Vec z = x * power[0], t = (z - 1) / (z + 1);  // log z = 2 (t + t^3 / 3 + ...), and t < 0.031
  return near + 2 * log2_e * fma(t * t, t * (1.0f / 3), t);
}

// Strips in a forward pass over a slice, or somewhat less.
int64_t strips(int64_t keys) { return std::max<int64_t>(1, keys * keys / 512 + keys / 8); }

// Packed copies of a thread; all matrices have rows and columns in multiples of 16.
struct ForwardMemory : Parts {
  const AttentionSizes& s;
  const int64_t keys = round_up(s.T, 16), width = round_up(s.D, 16);
  float *k = take<float>(keys * width), *v = take<float>(keys * width);  // (keys, width)
  float* q = take<float>(query_rows * width);                            // (query_rows, width)
  float* q_columns = take<float>(query_rows * width);                    // (width, query_rows)
  float* y = take<float>(query_rows * width);                            // (query_rows, width)
  float* S = take<float>(std::min(key_block, keys) * query_rows);        // (key_block, query_rows)
};

template <class T>
void forward_slice(const AttentionSizes& size, const ForwardMemory& m, const T* q, float* log_sums, T* y,
                   const T* next_q) {
  const int64_t width = m.width, stride = 3 * size.C, turns = strips(m.keys);
  float *sum = m.y, *S = m.S;
  Later later{{y, size.T, size.D, size.C, turns}, {next_q, 3 * size.T, size.D, size.C, turns}, {}};
  pack_rows(q + size.C, stride, size.T, size.D, m.k, m.keys, width);
  pack_rows(q + 2 * size.C, stride, size.T, size.D, m.v, m.keys, width);
  for (int64_t i = 0; i < size.T; i += query_rows) {
    const int64_t valid = std::min(query_rows, size.T - i), columns = round_up(valid, 16), keys = i + columns;
    pack_rows(q + i * stride, stride, valid, size.D, m.q, columns, width);
    transpose_rows(m.q, columns, width, size.scale(), m.q_columns);
    Softmax softmax;
    for (int64_t j = 0; j < keys; j += key_block) {
      const int64_t count = std::min(key_block, keys - j);
      multiply_scores(later, m.k + j * width, width, size.D, count, m.q_columns, columns, i - j, S);
      softmax.add_block(S, i - j, count, columns);
      for (int64_t r = 0; j > 0 && r < columns; ++r) {
        for (int64_t d = 0; d < width; d += lanes) {
          store(sum + r * width + d, load(sum + r * width + d) * softmax.factor[r]);
        }
      }
      const auto seen = [=](int64_t query, int64_t queries) {
        return Steps{0, std::min(count, i - j + query + queries)};
      };
      multiply(later, {columns, width, S, 1, query_rows, m.v + j * width, width, sum, width}, j > 0, seen);
    }
    for (int64_t r = 0; r < valid; r += lanes) {
      const Vec total = load(softmax.sum + r), L = load(softmax.largest + r) + log2(total) * ln_2;
      store(softmax.factor + r, 1 / total);
      store_first(log_sums + i + r, L, valid - r);
    }
    const auto normalize = [&](int64_t r) { return softmax.factor[r]; };
    store_rows(sum, width, valid, size.D, normalize, y + i * size.C, size.C);
  }
}

struct BackwardMemory : Parts {
  const AttentionSizes& s;
  const int64_t keys = round_up(s.T, 16), width = round_up(s.D, 16);
  const int64_t of_keys = keys * width, of_queries = query_rows * width;
  float *k = take<float>(of_keys), *v = take<float>(of_keys), *dk = take<float>(of_keys), *dv = take<float>(of_keys);
  float *q = take<float>(of_queries), *dy = take<float>(of_queries), *dq = take<float>(of_queries);
  float *q_columns = take<float>(of_queries), *dy_columns = take<float>(of_queries);  // (width, query_rows)
  float *P = take<float>(keys * query_rows), *dS = take<float>(keys * query_rows);    // (keys, query_rows)
};

// S and dP of a vector of queries become P = exp(S - log_sums), 0 for later keys, and dS = P (dP - delta).
void differentiate_columns(float* S, float* dP, int64_t visible, int64_t keys, Vec log_sums) {
  hide_later(S, visible, keys);
  Vec delta = {};
  for_exponentials(S, keys, log_sums, [&](int64_t i, Vec p) { delta = fma(p, load(dP + i), delta); });
  for (int64_t i = 0; i < keys * query_rows; i += query_rows) store(dP + i, load(S + i) * (load(dP + i) - delta));
}

template <class T>
void backward_slice(const AttentionSizes& size, const BackwardMemory& m, const T* q, const float* log_sums, const T* dy,
                    T* dq, const T* next_q, const T* next_dy) {
  const int64_t width = m.width, stride = 3 * size.C, turns = 3 * strips(m.keys);
  pack_rows(q + size.C, stride, size.T, size.D, m.k, m.keys, width);
  pack_rows(q + 2 * size.C, stride, size.T, size.D, m.v, m.keys, width);
  std::fill_n(m.dk, m.of_keys, 0.0f);
  std::fill_n(m.dv, m.of_keys, 0.0f);
  const auto scale = [&](int64_t) { return size.scale(); };
  Later later{{dq, 3 * size.T, size.D, size.C, turns},
              {next_q, 3 * size.T, size.D, size.C, turns},
              {next_dy, size.T, size.D, size.C, turns}};
  for (int64_t i = 0; i < size.T; i += query_rows) {
    const int64_t valid = std::min(query_rows, size.T - i), columns = round_up(valid, 16), keys = i + columns;
    pack_rows(q + i * stride, stride, valid, size.D, m.q, columns, width);
    pack_rows(dy + i * size.C, size.C, valid, size.D, m.dy, columns, width);
    transpose_rows(m.q, columns, width, size.scale(), m.q_columns);
    transpose_rows(m.dy, columns, width, 1, m.dy_columns);
    multiply_scores(later, m.k, width, size.D, keys, m.q_columns, columns, i, m.P);
    multiply_scores(later, m.v, width, size.D, keys, m.dy_columns, columns, i, m.dS);
    for (int64_t c = 0; c < columns; c += lanes) {
      differentiate_columns(m.P + c, m.dS + c, i + c + 1, round_up(i + c + 1, 16),
                            load_first_or(log_sums + i + c, valid - c, 0));
    }
    const auto seen = [=](int64_t query, int64_t queries) { return Steps{0, i + query + queries}; };
    const auto seen_by = [=](int64_t key, int64_t) { return Steps{std::max<int64_t>(0, key - i), valid}; };
    multiply(later, {columns, width, m.dS, 1, query_rows, m.k, width, m.dq, width}, false, seen);
    multiply(later, {keys, width, m.dS, query_rows, 1, m.q, width, m.dk, width}, true, seen_by);
    multiply(later, {keys, width, m.P, query_rows, 1, m.dy, width, m.dv, width}, true, seen_by);
    store_rows(m.dq, width, valid, size.D, scale, dq + i * stride, stride);
  }
  store_rows(m.dk, width, size.T, size.D, scale, dq + size.C, stride);
  const auto as_it_is = [](int64_t) { return 1.0f; };
  store_rows(m.dv, width, size.T, size.D, as_it_is, dq + 2 * size.C, stride);
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

constexpr int64_t query_rows = 64, key_block = 128;

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
