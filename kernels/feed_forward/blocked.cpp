// gelu_feed_forward in blocks of rows, in f32 (16-bit types are widened): variant "blocked". A task takes the hidden
// layer in chunks of columns, of which everything stays in the second-level cache:
//
//   forward, 128 rows:    s = x w1[:, chunk]  (kept)    h = gelu(s)      y += h w2[chunk, :]
//   backward, a group     dh = dy w2[chunk, :]^T        ds = dh gelu'(s), and h = gelu(s) again
//   of rows, 128 at once: dw2[chunk, :] += h^T dy       dw1[:, chunk] += x^T ds       dx += ds w1[:, chunk]^T
//
// h, dh and ds are never whole. Backward has 16 groups of rows at most, whatever the number of threads: each sums the
// gradients of the weights on its own, 512 rows after 512, and these sums are added in order.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/parts.h"
#include "kernels/feed_forward/gelu_feed_forward.h"
#include "kernels/gelu/gelu.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/cpu/block.h"
#include "kernels/gelu/gate.h"

namespace hs::HS_ISA {
namespace {

// C = A B, or C += A B, while `next` is requested. A panel of B, 64 columns of up to 128 steps, stays in the
// first-level cache. b: its panels, each of which begins `panel` floats after the one before.
void multiply(const BlockA& a, int64_t rows, const BlockB& b, int64_t panel, int64_t columns, int64_t steps,
              const BlockC& c, bool add, Ahead& next) {
  for (int64_t k = 0; k < steps; k += max_steps, add = true) {
    const int64_t now = std::min(max_steps, steps - k);
    for (int64_t n = 0; n < columns; n += panel_columns) {
      const int64_t width = std::min(panel_columns, columns - n), each = strip_rows(width);
      const BlockB here{b.data + n / panel_columns * panel + k * b.row, b.row};
      for (int64_t row = 0; row < rows; row += each) {
        next.request();
        multiply_rows({a.data + row * a.row + k * a.step, a.row, a.step}, std::min(each, rows - row), here, width, now,
                      {c.data + row * c.row + n, c.row}, add);
      }
    }
  }
}

// How often multiply() requests what is next, but for a last panel that is narrow.
int64_t strip_count(int64_t rows, int64_t columns) {
  const int64_t each = strip_rows(panel_columns);
  return (rows + each - 1) / each * ((columns + panel_columns - 1) / panel_columns);
}

template <class T>
void copy_rows(const T* from, int64_t rows, int64_t columns, float* to, int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i) copy_elements(from + i * columns, columns, to + i * to_row);
}

template <class T>
void forward_of(const GeluFeedForwardForward& call, Tensor& workspace) {
  const FeedForwardSizes s(call);
  const ForwardMemory m{Parts(workspace), s};
  const T* x = call.x.data<T>();
  T *sum = call.sum.mutable_data<T>(), *y = call.y.mutable_data<T>();
  pack_panels(as_computing(call.weight1.data<T>(), s.in * s.hidden, m.wide), s.in, s.hidden, false, m.w1);
  pack_panels(as_computing(call.weight2.data<T>(), s.hidden * s.out, m.wide), s.hidden, s.out, false, m.w2);
  parallel((s.N + block_rows - 1) / block_rows, [&](int64_t block, int thread) {
    const int64_t first = block * block_rows, rows = std::min(block_rows, s.N - first);
    const float* x_rows = as_computing(x + first * s.in, rows * s.in, m.x[thread]);
    float* const y_rows = place(y + first * s.out, m.y[thread]);
    const int64_t below = std::min(block_rows, s.N - first - rows), chunks = (s.hidden + chunk - 1) / chunk;
    Ahead next_x(x + (first + rows) * s.in, below, s.in, s.in, chunks * strip_count(rows, chunk));
    Ahead next_y(y + (first + rows) * s.out, below, s.out, s.out, chunks * strip_count(rows, s.out));
    for (int64_t j = 0; j < s.hidden; j += chunk) {
      const int64_t width = std::min(chunk, s.hidden - j);
      float* h = m.h[thread];
      multiply({x_rows, s.in, 1}, rows, {m.w1 + j * s.in, panel_columns}, s.in * panel_columns, width, s.in,
               {h, chunk_row}, false, next_x);
      for (int64_t i = 0; i < rows; ++i, h += chunk_row) {
        store_block(h, sum + (first + i) * s.hidden + j, width);
        for (int64_t c = 0; c < width; c += lanes) store(h + c, GeluGates(load(h + c)).value());
      }
      multiply({m.h[thread], chunk_row, 1}, rows, {m.w2 + j * panel_columns, panel_columns}, s.hidden * panel_columns,
               s.out, width, {y_rows, s.out}, j > 0, next_y);
    }
    if constexpr (stores_16_bits<T>) narrow(y_rows, y + first * s.out, rows * s.out);
  });
}

template <class T>
void backward_of(const GeluFeedForwardBackward& call, Tensor& workspace) {
  const FeedForwardSizes s(call);
  const BackwardMemory m{Parts(workspace), s};
  const T *x = call.x.data<T>(), *sum = call.sum.data<T>(), *dy = call.dy.data<T>();
  T* dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
  pack_panels(as_computing(call.weight2.data<T>(), s.out * s.hidden, m.wide), s.out, s.hidden, true, m.w2);
  if (dx) pack_panels(as_computing(call.weight1.data<T>(), s.hidden * s.in, m.wide), s.hidden, s.in, true, m.w1);
  parallel(s.groups, [&](int64_t group, int thread) {
    const int64_t begin = group * s.rows_each, end = std::min(begin + s.rows_each, s.N);
    for (int64_t first = begin; first < end; first += max_rows) {
      const int64_t all = std::min(max_rows, end - first);
      float *xs = m.x[thread], *dys = m.dy[thread], *h = m.h[thread], *ds = m.ds[thread];
      copy_rows(x + first * s.in, all, s.in, xs, s.in_row);
      copy_rows(dy + first * s.out, all, s.out, dys, s.out_row);
      float* const dx_rows = dx ? place(dx + first * s.in, m.dx[thread]) : nullptr;
      for (int64_t j = 0; j < s.hidden; j += chunk) {
        const int64_t width = std::min(chunk, s.hidden - j);
        for (int64_t row = 0; row < all; row += block_rows) {
          const int64_t rows = std::min(block_rows, all - row);
          // What is computed next needs sums from memory, for which it would wait.
          const bool is_last = row + rows == all, adds = first + row > begin;
          const int64_t next_row = is_last ? 0 : row + rows, next_rows = std::min(block_rows, all - next_row);
          const int64_t next_j = is_last ? j + chunk : j;
          Ahead next(sum + (first + next_row) * s.hidden + next_j, next_j < s.hidden ? next_rows : 0, width, s.hidden,
                     3 * strip_count(rows, width));
          const float *x_rows = xs + row * s.in_row, *dy_rows = dys + row * s.out_row;
          multiply({dy_rows, s.out_row, 1}, rows, {m.w2 + j * s.out, panel_columns}, s.out * panel_columns, width,
                   s.out, {ds, chunk_row}, false, next);
          for (int64_t i = 0; i < rows; ++i) {
            [[maybe_unused]] float wide[chunk];
            const float* from = as_computing(sum + (first + row + i) * s.hidden + j, width, wide);
            float *to_h = h + i * chunk_row, *to_ds = ds + i * chunk_row;
            for (int64_t c = 0; c < width; c += lanes) {
              const GeluGates gates(load(from + c));
              store(to_h + c, gates.value());
              store(to_ds + c, gates.gradient(load(to_ds + c)));
            }
          }
          if (call.dweight2.defined()) {
            multiply({h, 1, chunk_row}, width, {dy_rows, s.out_row}, panel_columns, s.out, rows,
                     {m.dw2[group] + j * s.out, s.out}, adds, next);
          }
          if (call.dweight1.defined()) {
            multiply({x_rows, 1, s.in_row}, s.in, {ds, chunk_row}, panel_columns, width, rows,
                     {m.dw1[group] + j, s.hidden}, adds, next);
          }
          if (dx) {
            multiply({ds, chunk_row, 1}, rows, {m.w1 + j * panel_columns, panel_columns}, s.hidden * panel_columns,
                     s.in, width, {dx_rows + row * s.in, s.in}, j > 0, next);
          }
        }
      }
      if constexpr (stores_16_bits<T>) {
        if (dx) narrow(dx_rows, dx + first * s.in, all * s.in);
      }
    }
  });
  add_groups<float>(m.dw1.first, m.dw1.size, s.groups, call.accumulate, call.dweight1);
  add_groups<float>(m.dw2.first, m.dw2.size, s.groups, call.accumulate, call.dweight2);
}

void forward(const GeluFeedForwardForward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { forward_of<T>(call, workspace); });
}
void backward(const GeluFeedForwardBackward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { backward_of<T>(call, workspace); });
}

}  // namespace
}  // namespace hs::HS_ISA

#else

namespace hs {
namespace {

constexpr int64_t panel_columns = 64, max_steps = 128, block_rows = 128, chunk = 128, max_rows = 512;

// Floats between rows that products read down the columns: were it a multiple of 512 bytes, they would compete for the
// same lines of the cache.
constexpr int64_t apart(int64_t columns) { return columns % 128 == 0 ? columns + 16 : columns; }
constexpr int64_t chunk_row = apart(chunk);

struct FeedForwardSizes {
  int64_t N, in, hidden, out;
  int64_t rows_each, groups, rows_together;          // of backward
  int64_t in_row = apart(in), out_row = apart(out);  // of copies of x and dy
  bool is_wide;                                      // x is f32; 16-bit weights and results have f32 copies
  explicit FeedForwardSizes(const auto& call)
      : N(call.x.shape()[0]),
        in(call.weight1.shape()[0]),
        hidden(call.weight1.shape()[1]),
        out(call.weight2.shape()[1]),
        rows_each(round_up(std::max<int64_t>((N + 15) / 16, 256), block_rows)),
        groups((N + rows_each - 1) / rows_each),
        rows_together(std::min(rows_each, max_rows)),
        is_wide(is_f32(call.x)) {}
  int64_t if_narrow(int64_t size) const { return is_wide ? 0 : size; }
  int64_t largest_weight() const { return hidden * std::max(in, out); }
};

// Where to compute what belongs at `to`: there, or in `buffer` if it has 16 bits.
template <class T>
float* place(T* to, float* buffer) {
  if constexpr (stores_16_bits<T>) return buffer;
  return reinterpret_cast<float*>(to);
}

struct ForwardMemory : Parts {
  const FeedForwardSizes& s;
  float* w1 = take<float>(s.in * round_up(s.hidden, panel_columns));  // panels of w1 (in, hidden)
  float* w2 = take<float>(s.hidden * round_up(s.out, panel_columns));
  float* wide = take<float>(s.if_narrow(s.largest_weight()));
  Each<float> h = each<float>(block_rows * chunk_row);
  Each<float> x = each<float>(s.if_narrow(block_rows * s.in)), y = each<float>(s.if_narrow(block_rows * s.out));
};

struct BackwardMemory : Parts {
  const FeedForwardSizes& s;
  float* w1 = take<float>(s.hidden * round_up(s.in, panel_columns));  // of its transpose, (hidden, in)
  float* w2 = take<float>(s.out * round_up(s.hidden, panel_columns));
  Each<float> x = each<float>(s.rows_together * s.in_row), dy = each<float>(s.rows_together * s.out_row);
  Each<float> h = each<float>(block_rows * chunk_row), ds = each<float>(block_rows * chunk_row);
  float* wide = take<float>(s.if_narrow(s.largest_weight()));
  Each<float> dx = each<float>(s.if_narrow(s.rows_together * s.in));
  Each<float> dw1 = each<float>(s.in * s.hidden, s.groups), dw2 = each<float>(s.hidden * s.out, s.groups);
};

// Packs B (steps, columns) in panels of 64 columns, each (steps, 64). B is `matrix`, or its transpose.
void pack_panels(const float* matrix, int64_t steps, int64_t columns, bool is_transposed, float* to) {
  parallel((columns + panel_columns - 1) / panel_columns, [=](int64_t panel, int) {
    const int64_t n = panel * panel_columns, width = std::min(panel_columns, columns - n);
    float* cells = to + n * steps;
    if (is_transposed) {
      return transpose(reinterpret_cast<const Cell*>(matrix + n * steps), steps, width, steps,
                       reinterpret_cast<Cell*>(cells), panel_columns);
    }
    for (int64_t k = 0; k < steps; ++k) std::copy_n(matrix + k * columns + n, width, cells + k * panel_columns);
  });
}

}  // namespace
}  // namespace hs

#define HS_SOURCE "kernels/feed_forward/blocked.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

// Whole vectors of any instruction set, so that nothing is padded; 16-bit types only where gemm widens them, too;
// enough rows for 8 threads backward; and weights of which a group's gradients, like blocks of rows, stay in the
// second-level cache: products with larger ones do not wait for memory.
bool supports(const auto& call) {
  const FeedForwardSizes s(call);
  const DType type = call.x.dtype();
  const auto is_whole = [](int64_t size) { return size > 0 && size % 16 == 0; };
  return takes_f32_or_16_bits(call) && !(type == DType::bf16 && multiplies_bf16_faster()) &&
         call.weight1.dtype() == type && call.weight2.dtype() == type && is_whole(s.in) && is_whole(s.hidden) &&
         is_whole(s.out) && s.groups >= 8 && s.hidden * (s.in + s.out) <= 1 << 18;
}

REGISTER_KERNEL(gelu_feed_forward_forward, cpu, "blocked",
                {.run = HS_DISPATCHED(forward),
                 .supported = supports<GeluFeedForwardForward>,
                 .workspace = [](const GeluFeedForwardForward& call) {
                   return ForwardMemory{Parts(), FeedForwardSizes(call)}.bytes();
                 }});
REGISTER_KERNEL(gelu_feed_forward_backward, cpu, "blocked",
                {.run = HS_DISPATCHED(backward),
                 .supported = supports<GeluFeedForwardBackward>,
                 .workspace = [](const GeluFeedForwardBackward& call) {
                   return BackwardMemory{Parts(), FeedForwardSizes(call)}.bytes();
                 }});

}  // namespace
}  // namespace hs
#endif
