// conv2d without im2col, in f32 (f16 and bf16 are widened): backward of the "direct" variant. A dy with few zeros takes
// the tiles of kernels/conv2d/dense_backward.h. Read first: kernels/conv2d/direct_backward.h.
#include <algorithm>

#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d/dense_backward.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pack.h"

#ifdef HS_ISA
#include "kernels/conv2d/direct_backward.h"

namespace hs::HS_ISA {
namespace {

// dy (OH*OW, OC), where zeros are found by comparing.
struct Dense {
  const float* dy;

  static int64_t pixels(const Conv2dSizes& s) { return s.OH * s.OW; }

  void collect(const Conv2dSizes& s, const Padded& p, Entry* entries, int32_t* counts) const {
    const float* row = dy;
    for (int64_t pixel = 0; pixel < pixels(s); ++pixel, row += s.OC) {
      const int32_t field = static_cast<int32_t>(field_offset(s, p, pixel));
      const auto append = [&](int64_t oc) { entries[oc * pixels(s) + counts[oc]++] = {row[oc], field}; };
      int64_t oc = 0;
      for (; oc + lanes <= s.OC; oc += lanes) {
        for (uint32_t bits = nonzero_bits(load(row + oc)); bits != 0; bits &= bits - 1)
          append(oc + __builtin_ctz(bits));
      }
      for (; oc < s.OC; ++oc) {
        if (row[oc] != 0) append(oc);
      }
    }
  }

  void add_bias_gradient(const Conv2dSizes& s, float* dbias) const {
    int64_t oc = 0;
    for (; oc + lanes <= s.OC; oc += lanes) {
      Vec sum = {};
      for (int64_t pixel = 0; pixel < pixels(s); ++pixel) sum += load(dy + pixel * s.OC + oc);
      store(dbias + oc, load(dbias + oc) + sum);
    }
    for (; oc < s.OC; ++oc) {
      float sum = 0;
      for (int64_t pixel = 0; pixel < pixels(s); ++pixel) sum += dy[pixel * s.OC + oc];
      dbias[oc] += sum;
    }
  }

  template <int vectors>
  void add_narrow(const Conv2dSizes& s, const Padded& p, const float* x, const int64_t (&offset)[narrow_taps],
                  int64_t first_oc, Vec (&sum)[narrow_taps][vectors]) const {
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
  }
};

void backward_direct(const Conv2dBackward& call, Tensor& workspace) {
  const auto source = [](int64_t, const float* dy) { return Dense{dy}; };
  for_float_type(call.x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) backward_from<T, Dense>(call, workspace, source);
  });
}

int64_t backward_workspace(const Conv2dBackward& call) { return workspace_of<Dense>(call); }

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/conv2d/direct_backward.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {

REGISTER_KERNEL(conv2d_backward, cpu, "direct",
                {.run =
                     +[](const Conv2dBackward& call, Tensor& workspace) {
                       if (fills_vectors(call.sizes) && has_few_zeros(call)) return dense_backward(call, workspace);
                       HS_FOR_THIS_CPU(backward_direct)(call, workspace);
                     },
                 .supported = [](const Conv2dBackward& call) { return is_f32(call.x) || is_16_bit(call.x); },
                 .workspace =
                     [](const Conv2dBackward& call) {
                       const int64_t lists = HS_FOR_THIS_CPU(backward_workspace)(call);
                       return fills_vectors(call.sizes) ? std::max(lists, dense_workspace(call)) : lists;
                     },
                 .rank = 10});

}  // namespace hs

#endif
