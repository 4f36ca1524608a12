// bf16 on AMX tiles: the "amx" variant, for any tiles. The convolution is that of kernels/conv2d/amx.h, for the
// positions that a window needs; the sums of one image stay in the cache, and are pooled there. Backward makes the
// dense gradient of one image at a time, mostly zeros, because tiles multiply zeros faster than vectors skip them.
// Internal to amx.cpp and its test.
#pragma once

#include "kernels/conv2d/amx.h"
#include "kernels/conv2d_pool_relu/pool.h"

namespace hs::amx {

// The byte offsets of the workspace's parts.
struct PooledLayout {
  int64_t positions, windows;  // of an image; positions are whole blocks
  int64_t weights, bias, planes, sums, results, winners, size;
  PooledLayout(const Conv2dSizes& s, const Plane& p) {
    positions = round_up((s.OH / 2 * 2 - 1) * p.W + s.OW / 2 * 2, 32);
    windows = (s.OH / 2) * (s.OW / 2);
    weights = 0;                                                // (taps, C/2, padded_oc) pairs
    bias = weights + p.taps() * p.C / 2 * p.padded_oc * 4;      // (padded_oc)
    planes = bias + p.padded_oc * 4;                            // (threads, stored, C) bf16
    sums = planes + threads() * p.stored() * p.C * 2;           // (threads, positions, padded_oc)
    results = sums + threads() * positions * p.padded_oc * 4;   // (threads, windows, padded_oc)
    winners = results + threads() * windows * p.padded_oc * 4;  // (threads, windows, padded_oc) bytes
    size = winners + threads() * windows * p.padded_oc;
  }
};

template <class Tiles>
void pooled_forward(const Conv2dPoolReluForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Plane p = input_plane(s);
  const PooledLayout layout(s, p);
  const int64_t PW = s.OW / 2, windows = layout.windows;
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  Cell* weights = reinterpret_cast<Cell*>(memory + layout.weights);
  float* bias = reinterpret_cast<float*>(memory + layout.bias);
  pack_weights(call.weight.data<BFloat16>(), s.C, p, weights);
  std::fill_n(bias, p.padded_oc, 0.0f);
  if (call.bias.defined()) widen(call.bias.data<BFloat16>(), bias, s.OC);
  const BFloat16* images = call.x.data<BFloat16>();
  BFloat16* y = call.y.mutable_data<BFloat16>();
  uint8_t* winner = call.winner.mutable_data<uint8_t>();
  parallel(s.N, [&](int64_t n, int thread) {
    BFloat16* plane = reinterpret_cast<BFloat16*>(memory + layout.planes) + thread * p.stored() * p.C;
    float* sums = reinterpret_cast<float*>(memory + layout.sums) + thread * layout.positions * p.padded_oc;
    float* results = reinterpret_cast<float*>(memory + layout.results) + thread * windows * p.padded_oc;
    uint8_t* winners = memory + layout.winners + thread * windows * p.padded_oc;
    fill_input(s, images + n * s.H * s.W * s.C, p, plane);
    {
      const Session<Tiles> session;
      for (int64_t q = 0; q < layout.positions; q += 32) {
        correlate_block<Tiles>(p, plane, weights, bias, q, sums + q * p.padded_oc);
      }
    }
    const WindowRow row{PW, p.padded_oc, p.W * p.padded_oc};
    for (int64_t window = 0; window < windows; window += PW) {
      const float* first = sums + window / PW * 2 * row.below;
      pool_sums(first, row, p.padded_oc, results + window * p.padded_oc, winners + window * p.padded_oc);
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
  const Conv2dSizes s = covered(call.sizes);
  return round_up(backward_size(s, call.dx.defined()), 64) + threads() * s.OH * s.OW * s.OC * 2;
}

template <class Tiles>
void pooled_backward(const Conv2dPoolReluBackward& call, Tensor& workspace) {
  const Conv2dSizes s = covered(call.sizes);
  const int64_t dense_size = s.OH * s.OW * s.OC, pooled_size = dense_size / 4;
  uint8_t* memory = workspace.mutable_data<uint8_t>();
  auto* dense = reinterpret_cast<BFloat16*>(memory + round_up(backward_size(s, call.dx.defined()), 64));
  const BFloat16* dy = call.dy.data<BFloat16>();
  const uint8_t* winner = call.winner.data<uint8_t>();
  backward_from<Tiles>(call, s, memory, [&](int64_t n, int thread) {
    BFloat16* to = dense + thread * dense_size;
    unpool(dy + n * pooled_size, winner + n * pooled_size, s.OH, s.OW, s.OC, to);
    return static_cast<const BFloat16*>(to);
  });
}

inline bool takes(const Conv2dPoolReluBackward& call) {
  return takes_forward(call.x, call.sizes) && (!call.dx.defined() || has_border(call.sizes));
}
inline bool takes(const Conv2dPoolReluForward& call) { return takes_forward(call.x, call.sizes); }
inline int64_t pooled_workspace(const Conv2dPoolReluForward& call) {
  return PooledLayout(call.sizes, input_plane(call.sizes)).size;
}

}  // namespace hs::amx
