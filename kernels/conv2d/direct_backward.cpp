// Backward of the "direct" conv2d and conv2d_pool_relu, in f32 (f16 and bf16 are widened): both gradients from the
// elements of dy that are not zero. The two ops differ in where those elements are: see Gradients. A conv2d whose dy
// has few zeros takes the tiles of kernels/conv2d/dense_backward.h.
//
// Gradients that come back through max-pooling and ReLU are mostly zero (one of four, or fewer, survives).
// Each nonzero dy[pixel, oc] is one scaled copy of a receptive field: dweight[oc] += dy * x[field] and
// dx[field] += dy * weight[oc]. Working output channel by output channel, the 288 weights or weight gradients of a
// 3x3x32 field sit in registers, and zeros cost nothing. With few input channels (conv 3x3 1->32: rows of 3 floats) a
// field does not fill a vector; then the weight gradient runs over vectors of output channels instead.
// A zero that is skipped contributes nothing even if the other factor is inf or NaN. A dy of inf or NaN makes NaN of
// the rest of the last vector in each kernel row of its field, up to 15 floats of dx that do not use it.
#include <algorithm>
#include <limits>

#include "kernels/conv2d/dense_backward.h"
#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/conv2d/direct.h"

namespace hs::HS_ISA {
namespace {

// The nonzero gradients of one output channel: value and the offset of its receptive field in the padded image.
struct Entry {
  float value;
  int32_t field;
};

// dy of one sample, (pixels, OC). If pooled, it is that of the windows, and `winner` says which pixel of a window it
// belongs to.
template <bool pooled>
struct Gradients {
  const float* dy;
  const uint8_t* winner;

  static constexpr int64_t side = pooled ? 2 : 1, places = side * side;  // of a window
  static constexpr bool has_patches = pooled && HS_VECTOR_BYTES == 64;

  static int64_t pixels(const Conv2dSizes& s) { return (s.OH / side) * (s.OW / side); }

  // From the first pixel of a window to the field of each.
  struct Window {
    int64_t pixel[places];
    Window(const Conv2dSizes& s, const Padded& p) : pixel{} {
      for (int64_t i = 0; i < places; ++i) pixel[i] = i / side * s.stride * p.row + i % side * s.stride * s.C;
    }
  };
  // Where the receptive field of a pixel, a window's first one, begins in the padded image.
  static int64_t first_field(const Conv2dSizes& s, const Padded& p, int64_t pixel) {
    const int64_t columns = s.OW / side;
    return (pixel / columns * side * p.W + pixel % columns * side) * s.stride * s.C;
  }

  // dy[i], 0 where ReLU closed the window.
  float open(int64_t i) const {
    if constexpr (pooled) return winner[i] != closed ? dy[i] : 0;
    return dy[i];
  }
  Vec open_lanes(int64_t i) const {
    if constexpr (pooled) return load_bytes(winner + i) != int32_t{closed} ? load(dy + i) : Vec{};
    return load(dy + i);
  }
  // dy[i] where this pixel of its window won, otherwise 0.
  Vec won_lanes(int64_t i, int32_t place) const {
    if constexpr (pooled) return load_bytes(winner + i) == place ? load(dy + i) : Vec{};
    return load(dy + i);
  }

  // Lists the elements that are not zero, by output channel.
  void collect(const Conv2dSizes& s, const Padded& p, Entry* entries, int32_t* counts) const {
    const Window window(s, p);
    for (int64_t pixel = 0, i = 0; pixel < pixels(s); ++pixel, i += s.OC) {
      const int64_t field = first_field(s, p, pixel);
      const auto append = [&](int64_t oc) {
        const int64_t place = pooled ? winner[i + oc] : 0;
        entries[oc * pixels(s) + counts[oc]++] = {dy[i + oc], static_cast<int32_t>(field + window.pixel[place])};
      };
      int64_t oc = 0;
      for (; oc + lanes <= s.OC; oc += lanes) {
        for (uint32_t bits = nonzero_bits(open_lanes(i + oc)); bits != 0; bits &= bits - 1)
          append(oc + __builtin_ctz(bits));
      }
      for (; oc < s.OC; ++oc) {
        if (open(i + oc) != 0) append(oc);
      }
    }
  }

  void add_bias_gradient(const Conv2dSizes& s, float* dbias) const {
    const int64_t end = pixels(s) * s.OC;
    int64_t oc = 0;
    for (; oc + lanes <= s.OC; oc += lanes) {
      Vec sum = {};
      for (int64_t i = oc; i < end; i += s.OC) sum += open_lanes(i);
      store(dbias + oc, load(dbias + oc) + sum);
    }
    for (; oc < s.OC; ++oc) {
      float sum = 0;
      for (int64_t i = oc; i < end; i += s.OC) sum += open(i);
      dbias[oc] += sum;
    }
  }

#if HS_VECTOR_BYTES == 64
  // dx window by window, for 3x3 kernels: the fields of a window's four pixels cover a patch of 4 x 4 pixels, whose
  // gradients for a vector of input channels stay in 16 registers while all output channels add to them. The channels
  // are sorted by winner first:
  //      . . . .
  //      . 0 1 .      winner 0 adds its 3x3 weights at the upper left of the patch,
  //      . 2 3 .      1 at the upper right, 2 and 3 below
  //      . . . .
  static bool takes_patches(const Conv2dSizes& s) {
    return pooled && s.KH == 3 && s.KW == 3 && s.stride == 1 && s.C % lanes == 0;
  }

  // For each window and winner in order: the gradients that are not zero, and their channels.
  struct Sorted {
    float* dy;         // (pixels, OC), and a vector behind it
    int32_t* channel;  // the same
    int32_t* ends;     // (pixels, 4)
    Sorted(const Conv2dSizes& s, float* memory)
        : dy(memory),
          channel(reinterpret_cast<int32_t*>(dy + pixels(s) * s.OC + lanes)),
          ends(channel + pixels(s) * s.OC + lanes) {}
    static int64_t size(const Conv2dSizes& s) { return 2 * (pixels(s) * s.OC + lanes) + 4 * pixels(s); }
  };

  // The weights of a vector of input channels lie together, so that they stay in the first-level cache:
  // (K, OC) -> (C / lanes, OC, 9, lanes).
  template <class T>
  static void pack_patches(const Conv2dSizes& s, const T* from, float* to) {
    for (int64_t c = 0; c < s.C; c += lanes) {
      for (int64_t oc = 0; oc < s.OC; ++oc) {
        for (int64_t tap = 0; tap < 9; ++tap) {
          const T* column = from + (tap * s.C + c) * s.OC + oc;
          for (int64_t i = 0; i < lanes; ++i) *to++ = to_computing(column[i * s.OC]);
        }
      }
    }
  }

  void sort(const Conv2dSizes& s, const Sorted& sorted) const {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    int32_t end = 0;
    for (int64_t window = 0; window < pixels(s); ++window) {
      for (int32_t place = 0; place < 4; ++place) {
        for (int64_t oc = 0; oc < s.OC; oc += lanes) {
          const int64_t i = window * s.OC + oc;
          const auto inside = static_cast<__mmask16>(oc + lanes <= s.OC ? 0xffff : (1 << (s.OC - oc)) - 1);
          const __m512 values = _mm512_maskz_loadu_ps(inside, dy + i);
          const __m128i chosen = _mm_maskz_loadu_epi8(inside, winner + i);
          const __mmask16 wanted = _mm_cmpeq_epi8_mask(chosen, _mm_set1_epi8(static_cast<char>(place))) &
                                   _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_NEQ_UQ);
          const __m512i channel = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int32_t>(oc)), lane);
          _mm512_storeu_ps(sorted.dy + end, _mm512_maskz_compress_ps(wanted, values));
          _mm512_storeu_si512(sorted.channel + end, _mm512_maskz_compress_epi32(wanted, channel));
          end += __builtin_popcount(wanted);
        }
        sorted.ends[window * 4 + place] = end;
      }
    }
  }

  template <int place>
  static void add_to_patch(const Sorted& sorted, int64_t begin, int64_t end, const float* weights, Vec (&patch)[4][4]) {
    for (int64_t i = begin; i < end; ++i) {
      const Vec value = broadcast(sorted.dy[i]);
      const float* w = weights + sorted.channel[i] * 9 * lanes;
      for (int kh = 0; kh < 3; ++kh) {
        for (int kw = 0; kw < 3; ++kw, w += lanes) {
          Vec& sum = patch[place / 2 + kh][place % 2 + kw];
          sum = fma(value, load(w), sum);
        }
      }
    }
  }

  // REQUIRES: takes_patches; weights of pack_patches, memory of Sorted::size() floats
  void add_patches(const Conv2dSizes& s, const Padded& p, const float* weights, float* memory, float* dx) const {
    const Sorted sorted(s, memory);
    sort(s, sorted);
    for (int64_t c = 0; c < s.C; c += lanes, weights += s.OC * 9 * lanes) {
      int64_t begin = 0;
      for (int64_t window = 0; window < pixels(s); ++window) {
        float* corner = dx + first_field(s, p, window) + c;
        const int32_t* end = sorted.ends + window * 4;
        Vec patch[4][4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) patch[r][i] = load(corner + r * p.row + i * s.C);
        }
        add_to_patch<0>(sorted, begin, end[0], weights, patch);
        add_to_patch<1>(sorted, end[0], end[1], weights, patch);
        add_to_patch<2>(sorted, end[1], end[2], weights, patch);
        add_to_patch<3>(sorted, end[2], end[3], weights, patch);
        begin = end[3];
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) store(corner + r * p.row + i * s.C, patch[r][i]);
        }
      }
    }
  }
#endif
};

// A kernel row of fewer floats than a vector, or so few that lists of a dy without zeros take longer: see the head of
// this file.
bool is_narrow(const Conv2dSizes& s, bool pooled) { return s.KW * s.C < (pooled ? lanes : 16) && s.OC % lanes == 0; }

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
    for (int r = 0; r < rows; ++r, field += b.row) {
      for (int v = 0; v < vectors; ++v) sum[r][v] = fma(value, load(field + v * lanes), sum[r][v]);
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

template <class Memory>
void wide_dweights(const Memory& m, int thread, const float* x, float* dweight) {
  const Conv2dSizes& s = m.s;
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    const BlockArguments b = m.block(thread, oc);
    for_blocks(s, m.padded_run, [&](int64_t kh, int64_t first, int rows, int vectors) {
      dweight_blocks[rows][vectors](b, x + kh * m.p.row + first, dweight + oc * m.field + kh * m.padded_run + first);
    });
  }
}

template <class Memory>
void add_dx(const Memory& m, int thread, float* dx) {
  const Conv2dSizes& s = m.s;
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    const BlockArguments b = m.block(thread, oc);
    for_blocks(s, m.padded_run, [&](int64_t kh, int64_t first, int rows, int vectors) {
      dx_blocks[rows][vectors](b, m.weights + oc * m.field + kh * m.padded_run + first, dx + kh * m.p.row + first);
    });
  }
}

// Some taps of a weight, and where each finds its input, relative to a field.
constexpr int narrow_taps = registers == 32 ? 9 : 5;
template <class Source>
constexpr int narrow_vectors = registers == 32 || Source::places == 1 ? 2 : 1;

template <int vectors, class Source>
void narrow_block(const Conv2dSizes& s, const Padded& p, const float* x, const Source& source, int64_t first_tap,
                  int64_t first_oc, float* dweight) {
  const int64_t count = std::min<int64_t>(narrow_taps, s.K() - first_tap), run = s.KW * s.C;
  int64_t offset[narrow_taps] = {};  // unused taps repeat offset 0; their sums are not stored
  for (int64_t k = 0; k < count; ++k) offset[k] = (first_tap + k) / run * p.row + (first_tap + k) % run;
  const typename Source::Window window(s, p);
  constexpr int places = Source::places;
  Vec sum[narrow_taps][vectors] = {};
  // If pooled, a channel's gradient belongs to one of the window's four pixels: it is multiplied by the inputs of all
  // four, and by zero three times. That is quicker than to look the right input up.
  int64_t at = first_oc;
  for (int64_t row = 0; row < s.OH / Source::side; ++row) {
    const float* field = x + row * Source::side * s.stride * p.row;
    for (int64_t column = 0; column < s.OW / Source::side;
         ++column, at += s.OC, field += Source::side * s.stride * s.C) {
      Vec g[places][vectors];
      for (int v = 0; v < vectors; ++v) {
        for (int place = 0; place < places; ++place) g[place][v] = source.won_lanes(at + v * lanes, place);
      }
      for (int k = 0; k < narrow_taps; ++k) {
        for (int place = 0; place < places; ++place) {
          const Vec value = broadcast(field[window.pixel[place] + offset[k]]);
          for (int v = 0; v < vectors; ++v) sum[k][v] = fma(value, g[place][v], sum[k][v]);
        }
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

template <class Source>
void narrow_dweights(const Conv2dSizes& s, const Padded& p, const float* x, const Source& source, float* dweight) {
  for (int64_t tap = 0; tap < s.K(); tap += narrow_taps) {
    int64_t oc = 0;
    for (; oc + narrow_vectors<Source> * lanes <= s.OC; oc += narrow_vectors<Source> * lanes) {
      narrow_block<narrow_vectors<Source>>(s, p, x, source, tap, oc, dweight);
    }
    for (; oc < s.OC; oc += lanes) narrow_block<1>(s, p, x, source, tap, oc, dweight);
  }
}

// The weights of each output channel as its field lies in the image: (K, OC) -> (OC, KH, padded run).
template <class T, class Memory>
void pack_fields(const Memory& m, const T* from) {
  const Conv2dSizes& s = m.s;
  std::fill_n(m.weights, s.OC * m.field, 0.0f);
  for (int64_t k = 0; k < s.K(); ++k) {
    float* to = m.weights + k / m.run * m.padded_run + k % m.run;
    for (int64_t oc = 0; oc < s.OC; ++oc) to[oc * m.field] = to_computing(from[k * s.OC + oc]);
  }
}

// Floats that a thread needs to sort its gradients.
template <class Source>
int64_t sorted_size(const Conv2dSizes& s) {
  if constexpr (Source::has_patches) {
    if (Source::takes_patches(s)) return round_up(Source::Sorted::size(s), lanes);
  }
  return 0;
}

const Tensor& relu_of(const Conv2dBackward& call) { return call.relu_y; }
const Tensor& relu_of(const Conv2dPoolReluBackward&) { return no_tensor(); }
const Tensor& winners_of(const Conv2dBackward&) { return no_tensor(); }
const Tensor& winners_of(const Conv2dPoolReluBackward& call) { return call.winner; }

template <class Call>
using SourceOf = Gradients<std::is_same_v<Call, Conv2dPoolReluBackward>>;

template <class Source>
struct BackwardMemory : Parts {
  const Conv2dSizes& s;
  const bool copies_dy;
  const Padded p{s};
  // A field is KH rows of padded_run floats. pixels: elements of a sample's dy for each output channel.
  const int64_t run = s.KW * s.C, padded_run = round_up(run, lanes), field = s.KH * padded_run;
  const int64_t groups = conv2d_groups(s), pixels = Source::pixels(s);
  float* weights = take<float>(s.OC * field);                       // (OC, field)
  Each<float> dweights = each<float>(s.OC * field, groups);         // of a group: (OC, field), if narrow (K, OC)
  Each<float> dbiases = each<float>(s.OC, groups);                  // (OC)
  Each<float> images = each<float>(p.size);                         // of a thread: the padded image
  Each<float> dimages = each<float>(p.size);                        // the padded image
  Each<Entry> entries = each<Entry>(s.OC * pixels);                 // (OC, pixels)
  Each<int32_t> counts = each<int32_t>(s.OC);                       // (OC)
  Each<float> own_dy = each<float>(copies_dy ? s.OC * pixels : 0);  // (pixels, OC)
  Each<float> sorted = each<float>(sorted_size<Source>(s));         // what Source sorts

  BlockArguments block(int thread, int64_t oc) const {
    return {entries[thread] + oc * pixels, counts[thread][oc], p.row, padded_run};
  }
};

template <class Call>
BackwardMemory<SourceOf<Call>> memory_of(const Call& call, const Parts& parts) {
  return {parts, call.sizes, is_16_bit(call.x) || relu_of(call).defined()};
}

// T: what the tensors store.
template <class T, class Call>
void backward_from(const Call& call, Tensor& workspace) {
  using Source = SourceOf<Call>;
  const Conv2dSizes& s = call.sizes;
  const auto m = memory_of(call, Parts(workspace));
  const int64_t dy_size = m.pixels * s.OC, image_size = s.H * s.W * s.C;
  const bool narrow = is_narrow(s, Source::side == 2), patches = m.sorted.size > 0;
  const T* images = call.x.template data<T>();
  const T* dout = call.dy.template data<T>();
  const T* relu_y = relu_of(call).defined() ? relu_of(call).template data<T>() : nullptr;
  const uint8_t* winners = winners_of(call).defined() ? winners_of(call).template data<uint8_t>() : nullptr;
  T* din = call.dx.defined() ? call.dx.template mutable_data<T>() : nullptr;
  if constexpr (Source::has_patches) {
    if (din && patches) Source::pack_patches(s, call.weight.template data<T>(), m.weights);
  }
  if (din && !patches) pack_fields(m, call.weight.template data<T>());
  // Vectors that run over the end of a row, padding, and 16 bits need a copy of the image.
  const bool is_copied = stores_16_bits<T> || s.padding > 0 || m.run != m.padded_run;

  parallel(m.groups, [&](int64_t group, int thread) {
    float *image = m.images[thread], *dimage = m.dimages[thread], *own_dy = m.own_dy[thread];
    float *dw = m.dweights.zeroed(group), *db = m.dbiases.zeroed(group);
    for (int64_t n = group * s.N / m.groups; n < (group + 1) * s.N / m.groups; ++n) {
      const float* dy = as_computing(dout + n * dy_size, dy_size, own_dy);
      if (relu_y) through_relu(relu_y + n * dy_size, dy, dy_size, own_dy), dy = own_dy;
      const Source source{dy, winners ? winners + n * dy_size : nullptr};
      if (call.dbias.defined()) source.add_bias_gradient(s, db);
      if ((din && !patches) || (call.dweight.defined() && !narrow)) {
        source.collect(s, m.p, m.entries[thread], m.counts.zeroed(thread));
      }
      if (call.dweight.defined()) {
        const float* x = image;
        if (is_copied) {
          copy_padded(s, images + n * image_size, image, m.p.size);
        } else {
          x = reinterpret_cast<const float*>(images + n * image_size);
        }
        if (narrow) {
          narrow_dweights(s, m.p, x, source, dw);
        } else {
          wide_dweights(m, thread, x, dw);
        }
      }
      if (din) {
        T* out = din + n * image_size;
        float* dx = is_copied ? dimage : reinterpret_cast<float*>(out);
        std::fill_n(dx, is_copied ? m.p.size : image_size, 0.0f);
        if constexpr (Source::has_patches) {
          if (patches) source.add_patches(s, m.p, m.weights, m.sorted[thread], dx);
        }
        if (!patches) add_dx(m, thread, dx);
        for (int64_t h = 0; is_copied && h < s.H; ++h) {
          store_block(dimage + (h + s.padding) * m.p.row + s.padding * s.C, out + h * s.W * s.C, s.W * s.C);
        }
      }
    }
  });

  add_groups(s, m.dweights, call.accumulate, call.dweight, narrow ? 1 : m.field,
             [narrow, &m](int64_t k) { return narrow ? k * m.s.OC : k / m.run * m.padded_run + k % m.run; });
  add_groups(s, m.dbiases, call.accumulate, call.dbias);
}

template <class Call>
void backward_direct(const Call& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { backward_from<T>(call, workspace); });
}

template <class Call>
int64_t backward_workspace(const Call& call) {
  return memory_of(call, Parts()).bytes();
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d/direct_backward.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

void lists_backward(const Conv2dBackward& call, Tensor& workspace) {
  HS_FOR_THIS_CPU(backward_direct<Conv2dBackward>)(call, workspace);
}
int64_t lists_workspace(const Conv2dBackward& call) {
  return HS_FOR_THIS_CPU(backward_workspace<Conv2dBackward>)(call);
}

namespace {

void backward(const Conv2dBackward& call, Tensor& workspace) {
  (fills_vectors(call.sizes) && has_few_zeros(call) ? dense_backward : lists_backward)(call, workspace);
}

int64_t workspace_of(const Conv2dBackward& call) {
  return fills_vectors(call.sizes) ? std::max(lists_workspace(call), dense_workspace(call)) : lists_workspace(call);
}

REGISTER_KERNEL(conv2d_backward, cpu, "direct",
                {.run = backward, .supported = takes_f32_or_16_bits, .workspace = workspace_of, .rank = 10});
REGISTER_KERNEL(conv2d_pool_relu_backward, cpu, "direct",
                {.run = HS_DISPATCHED(backward_direct<Conv2dPoolReluBackward>),
                 .supported = takes_f32_or_16_bits,
                 .workspace = HS_DISPATCHED(backward_workspace<Conv2dPoolReluBackward>),
                 .rank = 10});

}  // namespace
}  // namespace hs

#endif
