// Both gradients of a convolution from the elements of dy that are not zero. Internal to the "direct" variants of
// kernels/conv2d/ and kernels/conv2d_pool_relu/, which include it once for each instruction set; they differ in where
// those elements are, in a class:
//   struct Source {                                    // of one sample's gradient
//     static int64_t pixels(const Conv2dSizes&);    // elements of dy for each output channel
//     void collect(s, p, entries, counts);          // lists those that are not zero, by output channel
//     void add_bias_gradient(s, dbias);
//     void add_narrow<vectors>(s, p, x, offset, first_oc, sum);  // sum[k][v] += x[field + offset[k]] dy[first_oc ...]
//   };
//
// Gradients that come back through max-pooling and ReLU are mostly zero (one of four, or fewer, survives).
// Each nonzero dy[pixel, oc] is one scaled copy of a receptive field: dweight[oc] += dy * x[field] and
// dx[field] += dy * weight[oc]. Working output channel by output channel, the 288 weights or weight gradients of a
// 3x3x32 field sit in registers, and zeros cost nothing. With few input channels (conv 3x3 1->32: rows of 3 floats) a
// field does not fill a vector; then the weight gradient runs over vectors of output channels instead.
// A zero that is skipped contributes nothing even if the other factor is inf or NaN. A dy of inf or NaN makes NaN of
// the rest of the last vector in each kernel row of its field, up to 15 floats of dx that do not use it.
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
  int64_t sorted, sorted_size;                                                      // (threads, what Source sorts)
  int64_t size;
  // pixels: elements of a sample's dy for each output channel
  BackwardLayout(const Conv2dSizes& s, const Padded& p, int64_t pixels, bool copies_dy, int64_t sorted_size_)
      : sorted_size(sorted_size_) {
    run = s.KW * s.C;
    padded_run = round_up(run, lanes);
    field = s.KH * padded_run;
    const int64_t groups = std::max<int64_t>(conv2d_groups(s), 1);  // without samples, add_groups still has a total
    weights = 0;                                                    // (OC, field)
    dweights = weights + s.OC * field;                              // (groups, OC, field)
    dbiases = dweights + groups * s.OC * field;                     // (groups, OC)
    images = dbiases + groups * s.OC;                               // (threads, padded image)
    dimages = images + threads() * p.size;                          // (threads, padded image)
    entries = dimages + threads() * p.size;                         // (threads, OC, pixels) entries of two floats
    counts = entries + threads() * s.OC * pixels * 2;               // (threads, OC)
    gradients = counts + threads() * s.OC;                          // (threads, pixels, OC), if dy must be copied
    sorted = gradients + (copies_dy ? threads() * s.OC * pixels : 0);
    size = sorted + threads() * sorted_size;
  }
};

// Where the receptive field of an output pixel begins in the padded image.
inline int64_t field_offset(const Conv2dSizes& s, const Padded& p, int64_t pixel) {
  return (pixel / s.OW * s.stride * p.W + pixel % s.OW * s.stride) * s.C;
}

// A kernel row of fewer floats than a vector: see the head of this file.
bool is_narrow(const Conv2dSizes& s) { return s.KW * s.C < lanes && s.OC % lanes == 0; }

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

void wide_dweights(const Conv2dSizes& s, const Padded& p, const BackwardLayout& layout, int64_t pixels, const float* x,
                   const Entry* entries, const int32_t* counts, float* dweight) {
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    const BlockArguments b{entries + oc * pixels, counts[oc], p.row, layout.padded_run};
    for_blocks(s, layout.padded_run, [&](int64_t kh, int64_t first, int rows, int vectors) {
      dweight_blocks[rows][vectors](b, x + kh * p.row + first,
                                    dweight + oc * layout.field + kh * layout.padded_run + first);
    });
  }
}

void add_dx(const Conv2dSizes& s, const Padded& p, const BackwardLayout& layout, int64_t pixels, const float* weights,
            const Entry* entries, const int32_t* counts, float* dx) {
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    const BlockArguments b{entries + oc * pixels, counts[oc], p.row, layout.padded_run};
    for_blocks(s, layout.padded_run, [&](int64_t kh, int64_t first, int rows, int vectors) {
      dx_blocks[rows][vectors](b, weights + oc * layout.field + kh * layout.padded_run + first,
                               dx + kh * p.row + first);
    });
  }
}

// Some taps of a weight, and where each finds its input, relative to a field.
constexpr int narrow_taps = registers == 32 ? 9 : 5;
constexpr int narrow_vectors = registers == 32 ? 2 : 1;

template <int vectors, class Source>
void narrow_block(const Conv2dSizes& s, const Padded& p, const float* x, const Source& source, int64_t first_tap,
                  int64_t first_oc, float* dweight) {
  const int64_t count = std::min<int64_t>(narrow_taps, s.K() - first_tap), run = s.KW * s.C;
  int64_t offset[narrow_taps] = {};  // unused taps repeat offset 0; their sums are not stored
  for (int64_t k = 0; k < count; ++k) offset[k] = (first_tap + k) / run * p.row + (first_tap + k) % run;
  Vec sum[narrow_taps][vectors] = {};
  source.template add_narrow<vectors>(s, p, x, offset, first_oc, sum);
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
    for (; oc + narrow_vectors * lanes <= s.OC; oc += narrow_vectors * lanes) {
      narrow_block<narrow_vectors>(s, p, x, source, tap, oc, dweight);
    }
    for (; oc < s.OC; oc += lanes) narrow_block<1>(s, p, x, source, tap, oc, dweight);
  }
}

// The weights of each output channel as its field lies in the image: (K, OC) -> (OC, KH, padded run).
template <class T>
void pack_fields(const Conv2dSizes& s, const BackwardLayout& layout, const T* from, float* weights) {
  std::fill_n(weights, s.OC * layout.field, 0.0f);
  for (int64_t k = 0; k < s.K(); ++k) {
    float* to = weights + k / layout.run * layout.padded_run + k % layout.run;
    for (int64_t oc = 0; oc < s.OC; ++oc) to[oc * layout.field] = to_computing(from[k * s.OC + oc]);
  }
}

// dweight (+)= the groups' sums, which meet in order. A wide group is (OC, KH, padded run), a narrow one (K, OC).
void add_groups(const Conv2dSizes& s, const BackwardLayout& layout, bool narrow, float* groups, bool accumulate,
                Tensor& dweight) {
  const int64_t count = conv2d_groups(s), size = s.OC * layout.field;
  if (count == 0) std::fill_n(groups, size, 0.0f);
  constexpr int64_t channels = 8;  // of a piece: their totals stay in the cache until they are transposed
  for_float_type(dweight.dtype(), [&]<class To>() {
    To* to = dweight.mutable_data<To>();
    const auto update = [=](int64_t i, float total) {
      to[i] = from_computing<To>(static_cast<Computing<To>>((accumulate ? to_computing(to[i]) : 0) + total));
    };
    parallel((s.OC + channels - 1) / channels, [&](int64_t piece, int) {
      const int64_t first = piece * channels, last = std::min(first + channels, s.OC);
      if (narrow) {
        for (int64_t k = 0; k < s.K(); ++k) {
          for (int64_t i = k * s.OC + first; i < k * s.OC + last; ++i) {
            float total = groups[i];
            for (int64_t group = 1; group < count; ++group) total += groups[group * size + i];
            update(i, total);
          }
        }
        return;
      }
      for (int64_t group = 1; group < count; ++group) {
        const float* from = groups + group * size;
        for (int64_t i = first * layout.field; i < last * layout.field; ++i) groups[i] += from[i];
      }
      for (int64_t kh = 0, k = 0; kh < s.KH; ++kh) {
        for (int64_t r = 0; r < layout.run; ++r, ++k) {
          const float* total = groups + kh * layout.padded_run + r;
          for (int64_t oc = first; oc < last; ++oc) update(k * s.OC + oc, total[oc * layout.field]);
        }
      }
    });
  });
}

// Whether the source has a better way to dx, and the memory that a thread needs for it, in floats.
template <class Source>
bool has_patches(const Conv2dSizes& s) {
  if constexpr (requires { Source::has_patches(s); }) return Source::has_patches(s);
  return false;
}
template <class Source>
int64_t sorted_size(const Conv2dSizes& s) {
  if constexpr (requires { Source::has_patches(s); }) {
    if (Source::has_patches(s)) return round_up(Source::Sorted::size(s), lanes);
  }
  return 0;
}

template <class Source, class T>
void pack_for_dx(const Conv2dSizes& s, const BackwardLayout& layout, const T* weight, float* packed) {
  if constexpr (requires { Source::has_patches(s); }) {
    if (Source::has_patches(s)) return Source::pack_patches(s, weight, packed);
  }
  pack_fields(s, layout, weight, packed);
}

template <class Call>
bool has_relu(const Call& call) {
  if constexpr (requires { call.relu_y; }) return call.relu_y.defined();
  return false;
}

// dy where ReLU let y through, otherwise 0. `to` may be dy.
template <class T>
const float* through_relu(const T* y, const float* dy, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = dy[i];  // read on both paths, so that the compiler may use vectors
    to[i] = is_closed(y[i]) ? 0 : gradient;
  }
  return to;
}

// T: what the tensors store. make_source(n, dy) is the Source of sample n, whose gradient is dy, in f32.
template <class T, class Source, class Call, class MakeSource>
void backward_from(const Call& call, Tensor& workspace, const MakeSource& make_source) {
  const Conv2dSizes& s = call.sizes;
  const Padded p(s);
  const int64_t groups = conv2d_groups(s), pixels = Source::pixels(s), image_size = s.H * s.W * s.C;
  const BackwardLayout layout(s, p, pixels, stores_16_bits<T> || has_relu(call), sorted_size<Source>(s));
  const bool narrow = is_narrow(s);
  float* memory = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const T* images = call.x.template data<T>();
  const T* dout = call.dy.template data<T>();
  T* din = call.dx.defined() ? call.dx.template mutable_data<T>() : nullptr;
  float* weights = memory + layout.weights;
  if (din) pack_for_dx<Source>(s, layout, call.weight.template data<T>(), weights);
  // Vectors that run over the end of a row, padding, and 16 bits need a copy of the image.
  const bool is_copied = stores_16_bits<T> || s.padding > 0 || layout.run != layout.padded_run;

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
      float* own_dy = memory + layout.gradients + thread * pixels * s.OC;
      const float* dy = as_computing(dout + n * pixels * s.OC, pixels * s.OC, own_dy);
      if constexpr (requires { call.relu_y; }) {
        if (has_relu(call))
          dy = through_relu(call.relu_y.template data<T>() + n * pixels * s.OC, dy, pixels * s.OC, own_dy);
      }
      const Source source = make_source(n, dy);
      if (call.dbias.defined()) source.add_bias_gradient(s, db);
      if ((din && !has_patches<Source>(s)) || (call.dweight.defined() && !narrow)) {
        std::fill_n(counts, s.OC, 0);
        source.collect(s, p, entries, counts);
      }
      if (call.dweight.defined()) {
        const float* x = image;
        if (is_copied) {
          copy_padded(s, p, images + n * image_size, image);
        } else {
          x = reinterpret_cast<const float*>(images + n * image_size);
        }
        if (narrow) {
          narrow_dweights(s, p, x, source, dw);
        } else {
          wide_dweights(s, p, layout, pixels, x, entries, counts, dw);
        }
      }
      if (din) {
        T* out = din + n * image_size;
        float* dx = is_copied ? dimage : reinterpret_cast<float*>(out);
        std::fill_n(dx, is_copied ? p.size : image_size, 0.0f);
        if constexpr (requires { Source::has_patches(s); }) {
          if (has_patches<Source>(s)) {
            source.add_patches(s, p, weights, memory + layout.sorted + thread * layout.sorted_size, dx);
          }
        }
        if (!has_patches<Source>(s)) add_dx(s, p, layout, pixels, weights, entries, counts, dx);
        for (int64_t h = 0; is_copied && h < s.H; ++h) {
          store_block(dimage + (h + s.padding) * p.row + s.padding * s.C, out + h * s.W * s.C, s.W * s.C);
        }
      }
    }
  });

  if (call.dweight.defined()) {
    add_groups(s, layout, narrow, memory + layout.dweights, call.accumulate, call.dweight);
  }
  if (call.dbias.defined()) {
    update_gradient(call.dbias, call.accumulate, [&](int64_t oc, float sum) {
      for (int64_t group = 0; group < groups; ++group) sum += memory[layout.dbiases + group * s.OC + oc];
      return sum;
    });
  }
}

template <class Source, class Call>
int64_t workspace_of(const Call& call) {
  const Conv2dSizes& s = call.sizes;
  return BackwardLayout(s, Padded(s), Source::pixels(s), is_16_bit(call.x) || has_relu(call), sorted_size<Source>(s))
             .size *
         int64_t{sizeof(float)};
}

}  // namespace
}  // namespace hs::HS_ISA
