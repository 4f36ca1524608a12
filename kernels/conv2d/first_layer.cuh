// A first layer on the GPU: images of one or three channels by 3 x 3 fields, with a stride of 1. Shared by its two
// ways, direct.cu in all types and mma_first_layer.cu on tensor cores. .cu files only.
#pragma once

#include "kernels/conv2d_pool_relu/input_gradient.cuh"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/partials.cuh"

namespace hs::cuda {

inline constexpr int field_side = 3;

// Rows and columns of what a warp processes.
struct FirstLayerSizes {
  FirstLayerSizes(const Conv2dSizes& s, int64_t rows_, int64_t columns_)
      : rows(rows_),
        columns(columns_),
        H(static_cast<int>(s.H)),
        W(static_cast<int>(s.W)),
        OC(static_cast<int>(s.OC)),
        OH(static_cast<int>(s.OH)),
        OW(static_cast<int>(s.OW)),
        padding(static_cast<int>(s.padding)),
        count(static_cast<int>(s.N * rows.divisor() * columns.divisor())) {}
  Divisor rows, columns;
  int H, W, OC, OH, OW, padding;
  int count;  // of all images

  // Windows of 2 x 2 pixels; without pooling, those at the right and at the bottom may be incomplete.
  static FirstLayerSizes windows(const Conv2dSizes& s, bool pooled) {
    return pooled ? FirstLayerSizes(s, s.OH / 2, s.OW / 2) : FirstLayerSizes(s, (s.OH + 1) / 2, (s.OW + 1) / 2);
  }
  // What has a gradient: windows if they were pooled, otherwise pixels.
  static FirstLayerSizes gradients(const Conv2dSizes& s, bool pooled) {
    return pooled ? FirstLayerSizes(s, s.OH / 2, s.OW / 2) : FirstLayerSizes(s, s.OH, s.OW);
  }

  struct Place {
    int64_t n;
    int row, column;
  };
  __device__ __forceinline__ Place place(int i) const {
    const auto [line, column] = columns.divide(static_cast<uint32_t>(i));
    const auto [n, row] = rows.divide(line);
    return {n, static_cast<int>(row), static_cast<int>(column)};
  }
};

template <class Call>
constexpr bool pools = std::is_same_v<Call, Conv2dPoolReluForward> || std::is_same_v<Call, Conv2dPoolReluBackward>;

template <class Call>
bool is_first_layer(const Call& call) {
  constexpr bool pooled = pools<Call>;
  const Conv2dSizes& s = call.sizes;
  if constexpr (std::is_same_v<Call, Conv2dPoolReluForward>) {
    if (call.dropped) return false;
  }
  const bool field = s.KH == field_side && s.KW == field_side && s.stride == 1 && (s.C == 1 || s.C == 3);
  const int64_t gradients = pooled ? (s.OH / 2) * (s.OW / 2) : s.OH * s.OW;
  return is_float(call.x) && field && s.OC > 0 && s.padding < most_indices && gradients > 0 &&
         std::max(s.H * s.W * s.C, std::max(s.N, int64_t{1}) * gradients) <= most_indices;
}

// Gradients per block, and blocks, of the weight gradient: by the shapes alone.
struct FirstLayerParts {
  // most: blocks; least: gradients of a block, but for the last
  FirstLayerParts(const Conv2dSizes& s, bool pooled, int64_t most, int64_t least) {
    const int64_t gradients = FirstLayerSizes::gradients(s, pooled).count;
    per_block = std::max((gradients + most - 1) / most, least);
    blocks = (gradients + per_block - 1) / per_block;
    bytes = blocks * (s.K() + 1) * s.OC * static_cast<int64_t>(sizeof(float));
  }
  int64_t per_block, blocks, bytes;
};

template <class T>
PixelGradients<T, false> gradients_of(const Conv2dBackward& call) {
  return {call.dy.data<T>(), call.relu_y.defined() ? call.relu_y.data<T>() : nullptr};
}
template <class T>
PixelGradients<T, true> gradients_of(const Conv2dPoolReluBackward& call) {
  return {call.dy.data<T>(), call.winner.data<uint8_t>(), call.dy_factor};
}

inline uint8_t* winner_of(const Conv2dForward&) { return nullptr; }
inline uint8_t* winner_of(const Conv2dPoolReluForward& call) { return call.winner.mutable_data<uint8_t>(); }
inline bool has_relu(const Conv2dForward& call) { return call.relu; }
inline bool has_relu(const Conv2dPoolReluForward&) { return true; }

}  // namespace hs::cuda
