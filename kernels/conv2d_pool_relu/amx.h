// bf16 on AMX tiles: the "amx" variant, for any tiles. The convolution is that of kernels/conv2d/amx.h, for the
// positions that a window needs; the sums of one image stay in the cache, and are pooled there. Backward makes the
// dense gradient of one image at a time, mostly zeros, because tiles multiply zeros faster than vectors skip them.
// Internal to amx.cpp and its test.
#pragma once

#include "kernels/conv2d_pool_relu/amx_one_channel.h"

namespace hs::amx {

// How many rows of sums are in a strip, an even number, so that they stay in the first-level cache.
inline int64_t rows_of_strip(const Conv2dSizes& s, const Plane& p) {
  constexpr int64_t cache = 40 << 10;  // bytes
  int64_t rows = s.OH / 2 * 2;
  while (rows > 2 && round_up((rows - 1) * p.W + s.OW / 2 * 2, 32) * p.padded_oc * 4 > cache) rows -= 2;
  return rows;
}

struct PooledMemory : Parts {
  const Conv2dSizes& s;
  const Plane& p;
  const int64_t windows = (s.OH / 2) * (s.OW / 2), rows = rows_of_strip(s, p);
  Cell* weights = take<Cell>(p.weights());
  float* bias = take<float>(p.padded_oc);                  // (padded_oc)
  Each<BFloat16> planes = each<BFloat16>(p.stored * p.C);  // of a thread: (stored, C)
  Each<float> sums =
      each<float>(round_up((rows - 1) * p.W + s.OW / 2 * 2, 32) * p.padded_oc);  // (positions, padded_oc)
  Each<float> results = each<float>(windows * p.padded_oc);                      // (windows, padded_oc)
  Each<uint8_t> winners = each<uint8_t>(windows * p.padded_oc);                  // (windows, padded_oc)
};

template <class Tiles>
void pooled_forward(const Conv2dPoolReluForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  if (s.C == 1) return one_channel::forward<Tiles>(call, workspace);
  const Plane p = input_plane(s);
  const PooledMemory m{Parts(workspace), s, p};
  const int64_t PW = s.OW / 2;
  pack_parameters(call.weight, call.bias, s.C, p, m.weights, m.bias);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* y = call.y.mutable_data<BFloat16>();
  uint8_t* winner = call.winner.mutable_data<uint8_t>();
  parallel(s.N, [&](int64_t n, int thread) {
    float *sums = m.sums[thread], *results = m.results[thread];
    uint8_t* winners = m.winners[thread];
    const BFloat16* plane = planes_of(s, images, n, p, m.planes[thread]);
    {
      const Session<Tiles> session;
      const WindowRow row{PW, p.padded_oc, p.W * p.padded_oc};
      int64_t window = 0;
      for (int64_t h = 0; h < s.OH / 2 * 2; h += m.rows) {
        const int64_t rows = std::min(m.rows, s.OH / 2 * 2 - h), end = (rows - 1) * p.W + 2 * PW;
        for (int64_t q = 0; q < end; q += 32) {
          correlate_block<Tiles>(p, plane, m.weights, m.bias, h * p.W + q, sums + q * p.padded_oc);
        }
        for (int64_t i = 0; i < rows; i += 2, window += PW) {
          pool_sums(sums + i * row.below, row, p.padded_oc, results + window * p.padded_oc,
                    winners + window * p.padded_oc);
        }
      }
    }
    const int64_t rows = s.OC == p.padded_oc ? 1 : m.windows, count = m.windows / rows * s.OC;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t to = n * m.windows * s.OC + i * s.OC;
      narrow(results + i * p.padded_oc, y + to, count);
      std::copy_n(winners + i * p.padded_oc, count, winner + to);
    }
  });
}

// The sizes of a convolution whose result is only what the windows cover.
inline Conv2dSizes covered(Conv2dSizes s) {
  s.OH = s.OH / 2 * 2;
  s.OW = s.OW / 2 * 2;
  return s;
}

inline int64_t pooled_backward_workspace(const Conv2dPoolReluBackward& call) {
  if (call.sizes.C == 1)
    return one_channel::BackwardMemory{Parts(), call.sizes, one_channel::Image{call.sizes}}.bytes();
  return backward_size(covered(call.sizes), call.dx.defined());
}

template <class Tiles>
void pooled_backward(const Conv2dPoolReluBackward& call, Tensor& workspace) {
  if (call.sizes.C == 1) return one_channel::backward<Tiles>(call, workspace);
  const Conv2dSizes s = covered(call.sizes);
  const BFloat16* dy = call.dy.data<BFloat16>();
  const uint8_t* winner = call.winner.data<uint8_t>();
  backward_from<Tiles>(call, s, workspace, [&](int64_t n, const GradientPlane& plane, BFloat16* first) {
    const int64_t from = n * (s.OH / 2) * (s.OW / 2) * s.OC;
    unpool(dy + from, winner + from, s.OH, s.OW, s.OC, {plane.W * plane.C, plane.C}, first);
  });
}

inline bool takes(const Conv2dPoolReluBackward& call) {
  return takes_forward(call.x, call.sizes) || one_channel::takes_backward(call.x, call.dx, call.sizes);
}
inline bool takes(const Conv2dPoolReluForward& call) {
  return takes_forward(call.x, call.sizes) || one_channel::takes_forward(call.x, call.sizes);
}
inline int64_t pooled_workspace(const Conv2dPoolReluForward& call) {
  if (call.sizes.C == 1) return one_channel::ForwardMemory{Parts(), one_channel::Image{call.sizes}}.bytes();
  return PooledMemory{Parts(), call.sizes, input_plane(call.sizes)}.bytes();
}

}  // namespace hs::amx
