// conv2d for bf16 with AVX-512 BF16, backward. A dy with few zeros takes the tiles of kernels/conv2d/dense_backward.h.
// Otherwise, like kernels/conv2d/direct_backward.cpp, it visits the nonzero gradients
// only, but in pairs, because vdpbf16ps adds two products to each sum: dweight[oc] takes two pixels of one output
// channel at a time, dx[field] two output channels of one pixel. The two rows of 32 channels that belong to a pair are
// interleaved in registers. That leaves the 32 sums in the order 0-3, 8-11, 16-19, 24-27, 4-7, ...: they are kept so,
// and put in order at the end. Of inf and NaN in x or weight only what meets a nonzero gradient is seen.
#include "kernels/conv2d/dense_backward.h"
#include "kernels/cpu/pack.h"

#if defined(__x86_64__)
#include "kernels/cpu/avx512.h"

namespace hs {
namespace {

constexpr int64_t unit = 32;  // channels

// Where channel c of a unit is among its sums.
constexpr int64_t place_in_unit(int64_t c) { return c % 8 / 4 * 16 + c / 8 * 4 + c % 4; }

// A nonzero gradient of an output channel: where its receptive field begins in the padded image. Or of a pixel: where
// the weights of its output channel begin.
struct Entry {
  uint32_t place;
  uint32_t value;  // bf16
};

struct Memory : Parts {
  const Conv2dSizes& s;
  const int64_t groups = conv2d_groups(s), pixels = s.OH * s.OW;
  const int64_t W = s.W + 2 * s.padding, row = W * s.C, image = (s.H + 2 * s.padding) * row;  // padded, in elements
  const int64_t list = round_up(pixels, 2);                        // places of an output channel: even
  BFloat16* weights = take<BFloat16>(s.OC * s.K());                // (OC, K)
  Each<float> dweights = each<float>(s.OC * s.K(), groups);        // of a group: (OC, K)
  Each<float> dbiases = each<float>(s.OC, groups);                 // (OC)
  Each<BFloat16> images = each<BFloat16>(image);                   // of a thread: the padded image
  Each<float> dimages = each<float>(image);                        // the padded image
  Each<Entry> entries = each<Entry>(s.OC * list);                  // (OC, list)
  Each<int32_t> counts = each<int32_t>(s.OC);                      // (OC)
  Each<Entry> channels = each<Entry>(pixels * round_up(s.OC, 2));  // (pixels, OC), without gaps
  Each<uint32_t> starts = each<uint32_t>(pixels + 1);              // (pixels + 1)
};

// The nonzero elements of one sample's dy, by output channel and by pixel. A list of odd length is filled up with a
// gradient of zero. `sums` gets the sum of each output channel.
struct Lists {
  Entry* entries;    // (OC, list)
  int32_t* counts;   // (OC)
  Entry* channels;   // one pixel after the other
  uint32_t* starts;  // (pixels + 1), in `channels`
};

HS_TARGET_AVX512 void collect(const Memory& m, const BFloat16* dy, const Lists& g, float* dbias) {
  const Conv2dSizes& s = m.s;
  const auto K = static_cast<uint32_t>(s.K());
  std::fill_n(g.counts, s.OC, 0);
  uint32_t end = 0;
  for (int64_t pixel = 0; pixel < s.OH * s.OW; ++pixel, dy += s.OC) {
    g.starts[pixel] = end;
    const auto field = static_cast<uint32_t>((pixel / s.OW * s.stride * m.W + pixel % s.OW * s.stride) * s.C);
    for (int64_t first = 0; first < s.OC; first += 32) {
      const __mmask32 valid = s.OC - first >= 32 ? ~__mmask32{0} : (__mmask32{1} << (s.OC - first)) - 1;
      const __m512i values = _mm512_maskz_loadu_epi16(valid, dy + first);
      for (uint32_t bits = _mm512_test_epi16_mask(values, _mm512_set1_epi16(0x7fff)); bits != 0; bits &= bits - 1) {
        const int64_t oc = first + __builtin_ctz(bits);
        g.entries[oc * m.list + g.counts[oc]++] = {field, dy[oc].bits};
        g.channels[end++] = {static_cast<uint32_t>(oc) * K, dy[oc].bits};
      }
    }
    if ((end - g.starts[pixel]) % 2 != 0) {
      g.channels[end] = {g.channels[end - 1].place, 0};
      ++end;
    }
  }
  g.starts[s.OH * s.OW] = end;
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    Entry* list = g.entries + oc * m.list;
    float sum = 0;
    for (int32_t i = 0; i < g.counts[oc]; ++i) sum += to_float(BFloat16{static_cast<uint16_t>(list[i].value)});
    dbias[oc] += sum;
    if (g.counts[oc] % 2 != 0) {
      list[g.counts[oc]] = {list[g.counts[oc] - 1].place, 0};
      ++g.counts[oc];
    }
  }
}

// A block of a receptive field: `rows` kernel rows of `units` units, whose sums fit the registers.
constexpr int block_rows = 3, block_units = 3;

// sums += the pairs (p[i], q[i]) times the pair in `values`, for 32 channels.
HS_TARGET_AVX512_BF16 inline void add_pair(const BFloat16* p, const BFloat16* q, __m512i values, __m512 (&sums)[2]) {
  const __m512i first = _mm512_loadu_si512(p), second = _mm512_loadu_si512(q);
  sums[0] = _mm512_dpbf16_ps(sums[0], (__m512bh)values, (__m512bh)_mm512_unpacklo_epi16(first, second));
  sums[1] = _mm512_dpbf16_ps(sums[1], (__m512bh)values, (__m512bh)_mm512_unpackhi_epi16(first, second));
}

// to[block] += sum over the entries up to `end` of value * from[place + block]: a channel's weight gradients from the
// image, or a pixel's field of dx from the weights. from_row and to_row: from one kernel row to the next.
template <int rows, int units>
HS_TARGET_AVX512_BF16 void add_block(const Entry* entries, const Entry* end, const BFloat16* from, int64_t from_row,
                                     float* to, int64_t to_row) {
  __m512 sum[rows][units][2];
  for (int r = 0; r < rows; ++r) {
    for (int u = 0; u < 2 * units; ++u) sum[r][u / 2][u % 2] = _mm512_loadu_ps(to + r * to_row + u * 16);
  }
  for (; entries != end; entries += 2) {
    const __m512i values = _mm512_set1_epi32(static_cast<int>(entries[0].value | entries[1].value << 16));
    const BFloat16 *p = from + entries[0].place, *q = from + entries[1].place;
    for (int r = 0; r < rows; ++r) {
      for (int u = 0; u < units; ++u) {
        add_pair(p + r * from_row + u * unit, q + r * from_row + u * unit, values, sum[r][u]);
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int u = 0; u < 2 * units; ++u) _mm512_storeu_ps(to + r * to_row + u * 16, sum[r][u / 2][u % 2]);
  }
}

constexpr decltype(&add_block<1, 1>) add_blocks[block_rows][block_units] = {
    {add_block<1, 1>, add_block<1, 2>, add_block<1, 3>},
    {add_block<2, 1>, add_block<2, 2>, add_block<2, 3>},
    {add_block<3, 1>, add_block<3, 2>, add_block<3, 3>}};

// The blocks that make up a field.
void add_field(const Conv2dSizes& s, const Entry* entries, const Entry* end, const BFloat16* from, int64_t from_row,
               float* to, int64_t to_row) {
  const int64_t run = s.KW * s.C;
  for (int64_t kh = 0; kh < s.KH; kh += block_rows) {
    for (int64_t first = 0; first < run; first += block_units * unit) {
      const int64_t rows = std::min<int64_t>(block_rows, s.KH - kh);
      const int64_t units = std::min<int64_t>(block_units, (run - first) / unit);
      add_blocks[rows - 1][units - 1](entries, end, from + kh * from_row + first, from_row, to + kh * to_row + first,
                                      to_row);
    }
  }
}

void add_dweights(const Memory& m, const Lists& g, const BFloat16* image, float* dweight) {
  const Conv2dSizes& s = m.s;
  for (int64_t oc = 0; oc < s.OC; ++oc) {
    const Entry* list = g.entries + oc * m.list;
    add_field(s, list, list + g.counts[oc], image, m.row, dweight + oc * s.K(), s.KW * s.C);
  }
}

void add_dx(const Memory& m, const Lists& g, float* dx) {
  const Conv2dSizes& s = m.s;
  for (int64_t pixel = 0; pixel < s.OH * s.OW; ++pixel) {
    const Entry *begin = g.channels + g.starts[pixel], *end = g.channels + g.starts[pixel + 1];
    if (begin == end) continue;
    float* field = dx + (pixel / s.OW * s.stride * m.W + pixel % s.OW * s.stride) * s.C;
    add_field(s, begin, end, m.weights, s.KW * s.C, field, m.row);
  }
}

// Sums to bf16, in order. REQUIRES: count is a multiple of 32
HS_TARGET_AVX512 void store_units(const float* sums, BFloat16* to, int64_t count) {
  for (int64_t i = 0; i < count; i += unit) {
    const __m512i low = rounded_to_bf16(_mm512_loadu_ps(sums + i));
    const __m512i high = rounded_to_bf16(_mm512_loadu_ps(sums + i + 16));
    _mm512_storeu_si512(to + i, _mm512_packus_epi32(low, high));
  }
}

// (K, OC) -> (OC, K)
void transpose_weights(const Conv2dSizes& s, const BFloat16* weight, BFloat16* to) {
  parallel(s.OC, [=](int64_t oc, int) {
    for (int64_t k = 0; k < s.K(); ++k) to[oc * s.K() + k] = weight[k * s.OC + oc];
  });
}

void backward_by_lists(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Memory m{Parts(workspace), s};
  const int64_t image_size = s.H * s.W * s.C;
  const BFloat16* images = call.x.data<BFloat16>();
  const BFloat16* dout = call.dy.data<BFloat16>();
  BFloat16* din = call.dx.defined() ? call.dx.mutable_data<BFloat16>() : nullptr;
  if (din) transpose_weights(s, call.weight.data<BFloat16>(), m.weights);

  parallel(m.groups, [&](int64_t group, int thread) {
    BFloat16* padded = m.images[thread];
    float* dimage = m.dimages[thread];
    const Lists g{m.entries[thread], m.counts[thread], m.channels[thread], m.starts[thread]};
    float *dw = m.dweights.zeroed(group), *db = m.dbiases.zeroed(group);
    for (int64_t n = group * s.N / m.groups; n < (group + 1) * s.N / m.groups; ++n) {
      collect(m, dout + n * m.pixels * s.OC, g, db);
      const BFloat16* image = images + n * image_size;
      if (call.dweight.defined()) {
        if (s.padding > 0) {
          copy_padded(s, image, padded, m.image);
          image = padded;
        }
        add_dweights(m, g, image, dw);
      }
      if (din) {
        std::fill_n(dimage, m.image, 0.0f);
        add_dx(m, g, dimage);
        for (int64_t h = 0; h < s.H; ++h) {
          store_units(dimage + (h + s.padding) * m.row + s.padding * s.C, din + n * image_size + h * s.W * s.C,
                      s.W * s.C);
        }
      }
    }
  });

  add_groups(s, m.dweights, call.accumulate, call.dweight, s.K(),
             [](int64_t k) { return k / unit * unit + place_in_unit(k % unit); });
  add_groups(s, m.dbiases, call.accumulate, call.dbias);
}

bool supports_lists(const Conv2dSizes& s) { return s.C % unit == 0 && s.OC * s.K() <= UINT32_MAX; }
bool supports_dense(const Conv2dSizes& s) { return s.OC % 2 == 0 && fills_vectors(s); }

void backward_avx512_bf16(const Conv2dBackward& call, Tensor& workspace) {
  const bool lists = supports_lists(call.sizes), dense = supports_dense(call.sizes);
  if (dense && (!lists || has_few_zeros(call))) return dense_backward_bf16(call, workspace);
  backward_by_lists(call, workspace);
}

int64_t backward_workspace(const Conv2dBackward& call) {
  return std::max(supports_lists(call.sizes) ? Memory{Parts(), call.sizes}.bytes() : 0,
                  supports_dense(call.sizes) ? dense_workspace_bf16(call) : 0);
}

bool supports_backward(const Conv2dBackward& call) {
  return call.x.dtype() == DType::bf16 && (supports_lists(call.sizes) || supports_dense(call.sizes)) &&
         without_relu(call) && cpu_features().avx512_bf16;
}

REGISTER_KERNEL(conv2d_backward, cpu, "avx512_bf16",
                {.run = backward_avx512_bf16,
                 .supported = supports_backward,
                 .workspace = backward_workspace,
                 .rank = rank_of_bf16_pairs(10)});

}  // namespace
}  // namespace hs

#endif
