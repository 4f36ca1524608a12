// bf16 on AMX tiles: the "amx" variant, for any tiles. The convolution is that of kernels/conv2d/amx.h, for the
// positions that a window needs; the sums of one image stay in the cache, and are pooled there. Backward makes the
// dense gradient of one image at a time, mostly zeros, because tiles multiply zeros faster than vectors skip them.
// Internal to amx.cpp and its test.
#pragma once

#include "kernels/conv2d_pool_relu/amx_one_channel.h"

namespace hs::amx {

// The byte offsets of the workspace's parts.
struct PooledLayout {
  int64_t windows;          // of an image
  int64_t rows, positions;  // of a strip: an even number of rows of sums, and whole blocks of positions
  int64_t weights, bias, planes, sums, results, winners, size;
  PooledLayout(const Conv2dSizes& s, const Plane& p) {
    constexpr int64_t cache = 40 << 10;  // bytes of sums that stay in the first-level cache
    const auto blocks_of = [&](int64_t count) { return round_up((count - 1) * p.W + s.OW / 2 * 2, 32); };
    windows = (s.OH / 2) * (s.OW / 2);
    rows = s.OH / 2 * 2;
    while (rows > 2 && blocks_of(rows) * p.padded_oc * 4 > cache) rows -= 2;
    positions = blocks_of(rows);
    weights = 0;                                                // cells
    bias = weights + p.weights() * 4;                           // (padded_oc)
    planes = bias + p.padded_oc * 4;                            // (threads, stored, C) bf16
    sums = planes + threads() * p.stored * p.C * 2;             // (threads, positions, padded_oc)
    results = sums + threads() * positions * p.padded_oc * 4;   // (threads, windows, padded_oc)
    winners = results + threads() * windows * p.padded_oc * 4;  // (threads, windows, padded_oc) bytes
    size = winners + threads() * windows * p.padded_oc;
  }
};

template <class Tiles>
void pooled_forward(const Conv2dPoolReluForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  if (s.C == 1) return one_channel::forward<Tiles>(call, workspace);
  const Plane p = input_plane(s);
  const PooledLayout layout(s, p);
  const int64_t PW = s.OW / 2, windows = layout.windows;
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* bias = reinterpret_cast<float*>(memory + layout.bias);
  pack_parameters(call.weight, call.bias, s.C, p, weights, bias);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* y = call.y.mutable_data<BFloat16>();
  uint8_t* winner = call.winner.mutable_data<uint8_t>();
  parallel(s.N, [&](int64_t n, int thread) {
    BFloat16* own = reinterpret_cast<BFloat16*>(memory + layout.planes) + thread * p.stored * p.C;
    float* sums = reinterpret_cast<float*>(memory + layout.sums) + thread * layout.positions * p.padded_oc;
    float* results = reinterpret_cast<float*>(memory + layout.results) + thread * windows * p.padded_oc;
    uint8_t* winners = memory + layout.winners + thread * windows * p.padded_oc;
    const BFloat16* plane = planes_of(s, images, n, p, own);
    {
      const Session<Tiles> session;
      const WindowRow row{PW, p.padded_oc, p.W * p.padded_oc};
      int64_t window = 0;
      for (int64_t h = 0; h < s.OH / 2 * 2; h += layout.rows) {
        const int64_t rows = std::min(layout.rows, s.OH / 2 * 2 - h), end = (rows - 1) * p.W + 2 * PW;
        for (int64_t q = 0; q < end; q += 32) {
          correlate_block<Tiles>(p, plane, weights, bias, h * p.W + q, sums + q * p.padded_oc);
        }
        for (int64_t i = 0; i < rows; i += 2, window += PW) {
          pool_sums(sums + i * row.below, row, p.padded_oc, results + window * p.padded_oc,
                    winners + window * p.padded_oc);
        }
      }
    }
    const int64_t rows = s.OC == p.padded_oc ? 1 : windows, count = windows / rows * s.OC;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t to = n * windows * s.OC + i * s.OC;
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
  if (call.sizes.C == 1) return one_channel::BackwardLayout(call.sizes, one_channel::Image(call.sizes)).size;
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
  if (call.sizes.C == 1) return one_channel::ForwardLayout(one_channel::Image(call.sizes)).size;
  return PooledLayout(call.sizes, input_plane(call.sizes)).size;
}

}  // namespace hs::amx
