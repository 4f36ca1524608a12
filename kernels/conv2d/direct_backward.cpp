// The backward pass of the "direct" conv2d, in f32 (f16 and bf16 are widened).
//
// Gradients that come back through max-pooling and ReLU are mostly zero (one of four, or fewer, survives).
// Each nonzero dy[pixel, oc] is one scaled copy of a receptive field: dweight[oc] += dy * x[field] and
// dx[field] += dy * weight[oc]. Working output channel by output channel, the 288 weights or weight gradients of a
// 3x3x32 field sit in registers, and zeros cost nothing. With few input channels (conv 3x3 1->32: rows of 3 floats) a
// field does not fill a vector; then the weight gradient runs over vectors of output channels instead, zeros included.
// A zero that is skipped contributes nothing even if the other factor is inf or NaN. A dy of inf or NaN makes NaN of
// the rest of the last vector in each kernel row of its field, up to 15 floats of dx that do not use it.
#include <algorithm>

#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#ifdef HS_ISA
#include "kernels/conv2d/direct.h"

namespace hs::HS_ISA {
namespace {

// The nonzero gradients of one output channel: value and the offset of its receptive field in the padded image.
struct Entry {
  float value;
  int32_t field;
};

struct BackwardLayout {
  int64_t run, padded_run, field;  // run = KW*C; a field is KH rows of padded_run floats
  int64_t weights, dweights, dbiases, images, dimages, entries, counts, gradients;  // offsets in floats
  int64_t size;
  BackwardLayout(const Conv2dSizes& s, const Padded& p, bool is_widened) {
    run = s.KW * s.C;
    padded_run = round_up(run, lanes);
    field = s.KH * padded_run;
    const int64_t groups = conv2d_groups(s);
    weights = 0;                                            // (OC, field)
    dweights = weights + s.OC * field;                      // (groups, OC, field)
    dbiases = dweights + groups * s.OC * field;             // (groups, OC)
    images = dbiases + groups * s.OC;                       // (threads, padded image)
    dimages = images + threads() * p.size;                  // (threads, padded image)
    entries = dimages + threads() * p.size;                 // (threads, OC, OH*OW) entries of two floats
    counts = entries + threads() * s.OC * s.OH * s.OW * 2;  // (threads, OC)
    gradients = counts + threads() * s.OC;                  // (threads, OH*OW, OC), if dy must be widened
    size = gradients + (is_widened ? threads() * s.OC * s.OH * s.OW : 0);
  }
};

int64_t backward_workspace(const Conv2dBackward& call) {
  const Conv2dSizes& s = call.sizes;
  return BackwardLayout(s, Padded(s), is_16_bit(call.x)).size * static_cast<int64_t>(sizeof(float));
}

// Where the receptive field of an output pixel begins in the padded image.
int64_t field_offset(const Conv2dSizes& s, const Padded& p, int64_t pixel) {
  return (pixel / s.OW * s.stride * p.W + pixel % s.OW * s.stride) * s.C;
}

// Lists the nonzero elements of one sample's dy by output channel.
void collect(const Conv2dSizes& s, const Padded& p, const float* dy, Entry* entries, int32_t* counts) {
  const int64_t pixels = s.OH * s.OW;
  std::fill_n(counts, s.OC, 0);
  for (int64_t pixel = 0; pixel < pixels; ++pixel, dy += s.OC) {
    const int32_t field = static_cast<int32_t>(field_offset(s, p, pixel));
    const auto append = [&](int64_t oc) { entries[oc * pixels + counts[oc]++] = {dy[oc], field}; };
    int64_t oc = 0;
    for (; oc + lanes <= s.OC; oc += lanes) {
      const Vec values = load(dy + oc);
      for (uint32_t bits = nonzero_bits(values); bits != 0; bits &= bits - 1) append(oc + __builtin_ctz(bits));
    }
    for (; oc < s.OC; ++oc) {
      if (dy[oc] != 0) append(oc);
    }
  }
}

// dbias += the sum of one sample's dy over its pixels.
void add_bias_gradient(const Conv2dSizes& s, const float* dy, float* dbias) {
  int64_t oc = 0;
  for (; oc + lanes <= s.OC; oc += lanes) {
    Vec sum = {};
    for (int64_t pixel = 0; pixel < s.OH * s.OW; ++pixel) sum += load(dy + pixel * s.OC + oc);
    store(dbias + oc, load(dbias + oc) + sum);
  }
  for (; oc < s.OC; ++oc) {
    float sum = 0;
    for (int64_t pixel = 0; pixel < s.OH * s.OW; ++pixel) sum += dy[pixel * s.OC + oc];
    dbias[oc] += sum;
  }
}

// A kernel row of fewer floats than a vector: see the head of this file.
bool is_narrow(const Conv2dSizes& s) { return s.KW * s.C < lanes && s.OC % lanes == 0; }

// dweight[k, oc] += sum over pixels of x[field + offset(k)] * dy[pixel, oc], for some taps k and vectors of oc at a
// time.
constexpr int narrow_taps = registers == 32 ? 9 : 5;

template <int vectors>
void narrow_dweight(const Conv2dSizes& s, const Padded& p, const float* x, const float* dy, int64_t first_tap,
                    int64_t first_oc, float* dweight) {
  const int64_t count = std::min<int64_t>(narrow_taps, s.K() - first_tap), run = s.KW * s.C;
  int64_t offset[narrow_taps] = {};  // unused taps repeat offset 0; their sums are not stored
  for (int64_t k = 0; k < count; ++k) offset[k] = (first_tap + k) / run * p.row + (first_tap + k) % run;
  Vec sum[narrow_taps][vectors] = {};
  for (int64_t oh = 0; oh < s.OH; ++oh) {
    for (int64_t ow = 0; ow < s.OW; ++ow) {
      const float* field = x + oh * s.stride * p.row + ow * s.stride * s.C;
      const float* gradient = dy + (oh * s.OW + ow) * s.OC + first_oc;
      Vec g[vectors];
      for (int v = 0; v < vectors; ++v) g[v] = load(gradient + v * lanes);
      for (int k = 0; k < narrow_taps; ++k) {
        const Vec value = broadcast(field[offset[k]]);
        for (int v = 0; v < vectors; ++v) sum[k][v] = fma(value, g[v], sum[k][v]);
      }
    }
  }
  for (int k = 0; k < narrow_taps; ++k) {
    for (int v = 0; v < vectors && k < count; ++v) {
      float* place = dweight + (first_tap + k) * s.OC + first_oc + v * lanes;
      store(place, load(place) + sum[k][v]);
    }
  }
}

// One block of a receptive field: `rows` kernel rows of `vectors` vectors, in registers.
struct BlockArguments {
  const Entry* entries;
  int32_t count;
  int64_t row;         // distance of kernel rows in the image
  int64_t padded_run;  // distance of kernel rows in the weights
};

// dweight[block] += sum over entries of value * x[field + block]
template <int rows, int vectors>
void dweight_block(const BlockArguments& b, const float* x, float* dweight) {
  Vec sum[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) sum[r][v] = load(dweight + r * b.padded_run + v * lanes);
  }
  for (int32_t i = 0; i < b.count; ++i) {
    const Vec value = broadcast(b.entries[i].value);
    const float* field = x + b.entries[i].field;
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) sum[r][v] = fma(value, load(field + r * b.row + v * lanes), sum[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) store(dweight + r * b.padded_run + v * lanes, sum[r][v]);
  }
}

// dx[field + block] += value * weight[block], for each entry. The weights of a row end in zeros, so the floats that a
// last vector touches beyond the row do not change.
template <int rows, int vectors>
void dx_block(const BlockArguments& b, const float* weight, float* dx) {
  Vec w[rows][vectors];
  for (int r = 0; r < rows; ++r) {
    for (int v = 0; v < vectors; ++v) w[r][v] = load(weight + r * b.padded_run + v * lanes);
  }
  for (int32_t i = 0; i < b.count; ++i) {
    const Vec value = broadcast(b.entries[i].value);
    float* field = dx + b.entries[i].field;
    for (int r = 0; r < rows; ++r) {
      for (int v = 0; v < vectors; ++v) {
        float* place = field + r * b.row + v * lanes;
        store(place, fma(value, w[r][v], load(place)));
      }
    }
  }
}

// Registers hold 3 rows of up to this many vectors (a 3x3x32 field is 3 rows of 6 with AVX-512).
constexpr int block_rows = 3;
constexpr int block_vectors = registers == 32 ? 6 : 4;

using BlockFunction = void (*)(const BlockArguments&, const float*, float*);
constexpr BlockFunction dweight_blocks[2][7] = {{nullptr, dweight_block<1, 1>, dweight_block<1, 2>, dweight_block<1, 3>,
                                                 dweight_block<1, 4>, dweight_block<1, 5>, dweight_block<1, 6>},
                                                {nullptr, dweight_block<3, 1>, dweight_block<3, 2>, dweight_block<3, 3>,
                                                 dweight_block<3, 4>, dweight_block<3, 5>, dweight_block<3, 6>}};
constexpr BlockFunction dx_blocks[2][7] = {
    {nullptr, dx_block<1, 1>, dx_block<1, 2>, dx_block<1, 3>, dx_block<1, 4>, dx_block<1, 5>, dx_block<1, 6>},
    {nullptr, dx_block<3, 1>, dx_block<3, 2>, dx_block<3, 3>, dx_block<3, 4>, dx_block<3, 5>, dx_block<3, 6>}};

// Calls body(kernel row, first float of the run, functions' row index, vectors) for the blocks of a receptive field.
template <class Body>
void for_blocks(const Conv2dSizes& s, int64_t padded_run, const Body& body) {
  for (int64_t kh = 0; kh < s.KH;) {
    const bool three = kh + block_rows <= s.KH;
    for (int64_t first = 0; first < padded_run; first += block_vectors * lanes) {
      body(kh, first, three ? 1 : 0, static_cast<int>(std::min<int64_t>(block_vectors, (padded_run - first) / lanes)));
    }
    kh += three ? block_rows : 1;
  }
}

void narrow_dweights(const Conv2dSizes& s, const Padded& p, const float* x, const float* dy, float* dweight) {
  for (int64_t tap = 0; tap < s.K(); tap += narrow_taps) {
    int64_t oc = 0;
    for (; oc + 2 * lanes <= s.OC; oc += 2 * lanes) narrow_dweight<2>(s, p, x, dy, tap, oc, dweight);
    for (; oc < s.OC; oc += lanes) narrow_dweight<1>(s, p, x, dy, tap, oc, dweight);
  }
}

void wide_dweights(const Conv2dSizes& s, const Padded& p, const BackwardLayout& layout, const float* x,
                   const Entry* entries, const int32_t* counts, float* dweight) {
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    const BlockArguments b{entries + oc * s.OH * s.OW, counts[oc], p.row, layout.padded_run};
    for_blocks(s, layout.padded_run, [&](int64_t kh, int64_t first, int rows, int vectors) {
      dweight_blocks[rows][vectors](b, x + kh * p.row + first,
                                    dweight + oc * layout.field + kh * layout.padded_run + first);
    });
  }
}

void add_dx(const Conv2dSizes& s, const Padded& p, const BackwardLayout& layout, const float* weights,
            const Entry* entries, const int32_t* counts, float* dx) {
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    const BlockArguments b{entries + oc * s.OH * s.OW, counts[oc], p.row, layout.padded_run};
    for_blocks(s, layout.padded_run, [&](int64_t kh, int64_t first, int rows, int vectors) {
      dx_blocks[rows][vectors](b, weights + oc * layout.field + kh * layout.padded_run + first,
                               dx + kh * p.row + first);
    });
  }
}

template <class T>
void backward_typed(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Padded p(s);
  const BackwardLayout layout(s, p, stores_16_bits<T>);
  const int64_t groups = conv2d_groups(s), pixels = s.OH * s.OW, image_size = s.H * s.W * s.C;
  const bool narrow = is_narrow(s);
  float* memory = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const T* images = call.x.data<T>();
  const T* dout = call.dy.data<T>();
  T* din = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
  float* weights = memory + layout.weights;
  if (din) {  // (K, OC) -> (OC, KH, padded run)
    const T* from = call.weight.data<T>();
    std::fill_n(weights, s.OC * layout.field, 0.0f);
    for (int64_t k = 0; k < s.K(); ++k) {
      float* to = weights + k / layout.run * layout.padded_run + k % layout.run;
      for (int64_t oc = 0; oc < s.OC; ++oc) to[oc * layout.field] = to_computing(from[k * s.OC + oc]);
    }
  }

  parallel(groups, [&](int64_t group, int thread) {
    float* image = memory + layout.images + thread * p.size;
    float* dimage = memory + layout.dimages + thread * p.size;
    Entry* entries = reinterpret_cast<Entry*>(memory + layout.entries) + thread * s.OC * pixels;
    int32_t* counts = reinterpret_cast<int32_t*>(memory + layout.counts) + thread * s.OC;
    float* dw = memory + layout.dweights + group * s.OC * layout.field;
    float* db = memory + layout.dbiases + group * s.OC;
    std::fill_n(dw, s.OC * layout.field, 0.0f);
    std::fill_n(db, s.OC, 0.0f);
    for (int64_t n = group * s.N / groups; n < (group + 1) * s.N / groups; ++n) {
      const float* dyn =
          as_computing(dout + n * pixels * s.OC, pixels * s.OC, memory + layout.gradients + thread * pixels * s.OC);
      if (call.dbias.defined()) add_bias_gradient(s, dyn, db);
      if (din || (call.dweight.defined() && !narrow)) collect(s, p, dyn, entries, counts);
      if (call.dweight.defined()) {
        copy_padded(s, p, images + n * image_size, image);
        if (narrow) {
          narrow_dweights(s, p, image, dyn, dw);
        } else {
          wide_dweights(s, p, layout, image, entries, counts, dw);
        }
      }
      if (din) {
        std::fill_n(dimage, p.size, 0.0f);
        add_dx(s, p, layout, weights, entries, counts, dimage);
        for (int64_t h = 0; h < s.H; ++h) {
          store_block(dimage + (h + s.padding) * p.row + s.padding * s.C, din + n * image_size + h * s.W * s.C,
                      s.W * s.C);
        }
      }
    }
  });

  if (call.dweight
          .defined()) {  // the groups meet in order; a wide gradient is (OC, KH, padded run), a narrow one (K, OC)
    float* total = memory + layout.dweights;
    parallel(s.OC, [&](int64_t oc, int) {
      for (int64_t group = 1; group < groups; ++group) {
        const float* from = total + group * s.OC * layout.field;
        for (int64_t i = oc * layout.field; i < (oc + 1) * layout.field; ++i) total[i] += from[i];
      }
    });
    update_gradient(call.dweight, call.accumulate, [&](int64_t i, float before) {
      if (groups == 0) return before;
      if (narrow) return before + total[i];
      const int64_t k = i / s.OC, oc = i % s.OC;
      return before + total[oc * layout.field + k / layout.run * layout.padded_run + k % layout.run];
    });
  }
  if (call.dbias.defined()) {
    update_gradient(call.dbias, call.accumulate, [&](int64_t oc, float sum) {
      for (int64_t group = 0; group < groups; ++group) sum += memory[layout.dbiases + group * s.OC + oc];
      return sum;
    });
  }
}

void backward_direct(const Conv2dBackward& call, Tensor& workspace) {
  const auto run = call.x.dtype() == DType::f16    ? backward_typed<Half>
                   : call.x.dtype() == DType::bf16 ? backward_typed<BFloat16>
                                                   : backward_typed<float>;
  run(call, workspace);
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d/direct_backward.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

REGISTER_KERNEL(conv2d_backward, cpu, "direct",
                {.run = +[](const Conv2dBackward& call,
                            Tensor& workspace) { HS_FOR_THIS_CPU(backward_direct)
                                                 (call, workspace); },
                 .supported = [](const Conv2dBackward& call) { return is_f32(call.x) || is_16_bit(call.x); },
                 .workspace = [](const Conv2dBackward& call) { return HS_FOR_THIS_CPU(backward_workspace)(call); },
                 .rank = 10});

}  // namespace hs

#endif
