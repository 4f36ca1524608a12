// Backward in f32 (f16 and bf16 are widened): the "direct" variant. Only the winners of pooling that ReLU let through
// have a gradient, at most one of four positions of the convolution, so a dense gradient is never made. Read first:
// kernels/conv2d/direct_backward.h.
#include <algorithm>

#include "kernels/conv2d_pool_relu/conv2d_pool_relu.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#ifdef HS_ISA
#include "kernels/conv2d/direct_backward.h"

namespace hs::HS_ISA {
namespace {

// dy and winner (windows, OC).
struct Winners {
  const float* dy;
  const uint8_t* winner;

  static int64_t pixels(const Conv2dSizes& s) { return (s.OH / 2) * (s.OW / 2); }

  // From the first pixel of a window to the field of each of the four.
  struct Window {
    int64_t pixel[4];
    Window(const Conv2dSizes& s, const Padded& p) : pixel{} {
      for (int64_t i = 0; i < 4; ++i) pixel[i] = i / 2 * s.stride * p.row + i % 2 * s.stride * s.C;
    }
  };
  static int64_t first_field(const Conv2dSizes& s, const Padded& p, int64_t window) {
    const int64_t PW = s.OW / 2;
    return (window / PW * 2 * p.W + window % PW * 2) * s.stride * s.C;
  }

  void collect(const Conv2dSizes& s, const Padded& p, Entry* entries, int32_t* counts) const {
    const Window places(s, p);
    const float* values = dy;
    const uint8_t* chosen = winner;
    for (int64_t window = 0; window < pixels(s); ++window, values += s.OC, chosen += s.OC) {
      const int64_t field = first_field(s, p, window);
      const auto append = [&](int64_t oc) {
        entries[oc * pixels(s) + counts[oc]++] = {values[oc], static_cast<int32_t>(field + places.pixel[chosen[oc]])};
      };
      int64_t oc = 0;
      for (; oc + lanes <= s.OC; oc += lanes) {
        const Vec open = load_bytes(chosen + oc) != int32_t{closed} ? load(values + oc) : Vec{};
        for (uint32_t bits = nonzero_bits(open); bits != 0; bits &= bits - 1) append(oc + __builtin_ctz(bits));
      }
      for (; oc < s.OC; ++oc) {
        if (chosen[oc] != closed && values[oc] != 0) append(oc);
      }
    }
  }

  void add_bias_gradient(const Conv2dSizes& s, float* dbias) const {
    int64_t oc = 0;
    for (; oc + lanes <= s.OC; oc += lanes) {
      Vec sum = {};
      for (int64_t i = oc; i < pixels(s) * s.OC; i += s.OC) {
        sum += load_bytes(winner + i) != int32_t{closed} ? load(dy + i) : Vec{};
      }
      store(dbias + oc, load(dbias + oc) + sum);
    }
    for (; oc < s.OC; ++oc) {
      float sum = 0;
      for (int64_t i = oc; i < pixels(s) * s.OC; i += s.OC) sum += winner[i] != closed ? dy[i] : 0;
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
  static bool has_patches(const Conv2dSizes& s) { return s.KH == 3 && s.KW == 3 && s.stride == 1 && s.C % lanes == 0; }

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

  // REQUIRES: has_patches; weights of pack_patches, memory of Sorted::size() floats
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

  // A channel's gradient belongs to one of the window's four pixels: it is multiplied by the inputs of all four, and by
  // zero three times. That is quicker than to look the right input up.
  template <int vectors>
  void add_narrow(const Conv2dSizes& s, const Padded& p, const float* x, const int64_t (&offset)[narrow_taps],
                  int64_t first_oc, Vec (&sum)[narrow_taps][vectors]) const {
    const Window places(s, p);
    for (int64_t window = 0; window < pixels(s); ++window) {
      const float* field = x + first_field(s, p, window);
      Vec g[4][vectors];
      for (int v = 0; v < vectors; ++v) {
        const int64_t i = window * s.OC + first_oc + v * lanes;
        const Vec values = load(dy + i);
        const Ints chosen = load_bytes(winner + i);
        for (int32_t place = 0; place < 4; ++place) g[place][v] = chosen == place ? values : Vec{};
      }
      for (int k = 0; k < narrow_taps; ++k) {
        for (int place = 0; place < 4; ++place) {
          const Vec value = broadcast(field[places.pixel[place] + offset[k]]);
          for (int v = 0; v < vectors; ++v) sum[k][v] = fma(value, g[place][v], sum[k][v]);
        }
      }
    }
  }
};

void backward_direct(const Conv2dPoolReluBackward& call, Tensor& workspace) {
  const int64_t size = Winners::pixels(call.sizes) * call.sizes.OC;
  const uint8_t* winners = call.winner.data<uint8_t>();
  const auto source = [=](int64_t n, const float* dy) { return Winners{dy, winners + n * size}; };
  for_float_type(call.x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) backward_from<T, Winners>(call, workspace, source);
  });
}

int64_t backward_workspace(const Conv2dPoolReluBackward& call) { return workspace_of<Winners>(call); }

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d_pool_relu/direct_backward.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

REGISTER_KERNEL(conv2d_pool_relu_backward, cpu, "direct",
                {.run =
                     +[](const Conv2dPoolReluBackward& call, Tensor& workspace) {
                       HS_FOR_THIS_CPU(backward_direct)
                       (call, workspace);
                     },
                 .supported = [](const Conv2dPoolReluBackward& call) { return is_f32(call.x) || is_16_bit(call.x); },
                 .workspace =
                     [](const Conv2dPoolReluBackward& call) { return HS_FOR_THIS_CPU(backward_workspace)(call); },
                 .rank = 10});

}  // namespace hs

#endif
