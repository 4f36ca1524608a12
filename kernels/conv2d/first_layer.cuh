// A first layer on the GPU: images of one or three channels by 3 x 3 fields, with a stride of 1. Shared by its two
// ways, direct.cu in all types and mma_first_layer.cu on tensor cores, which are kernels of the same parameters.
// .cu files only.
#pragma once

#include "kernels/conv2d_pool_relu/input_gradient.cuh"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/partials.cuh"

namespace hs::cuda {

inline constexpr int field_side = 3;

// Rows and columns of what a warp processes.
struct FirstLayerSizes : ConvSizes {
  FirstLayerSizes(const Conv2dSizes& s, int64_t rows_, int64_t columns_)
      : ConvSizes(conv_sizes(s)), rows(rows_), columns(columns_), count(static_cast<int>(s.N * rows_ * columns_)) {}
  Divisor rows, columns;
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
  return is_float(call.x) && field && s.OC > 0 && s.padding < max_indices && gradients > 0 &&
         std::max(s.H * s.W * s.C, std::max(s.N, int64_t{1}) * gradients) <= max_indices;
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

// What a way has for a call, as its kernels<T, pooled>(sizes) returns it. Forward, `relu` decides if nothing is pooled;
// otherwise y is the pooled tensor, and `winner` says which pixel each is. partials (gridDim.x, 9 * C + 1, OC): a block
// sums the gradients first to first + per_block - 1.
template <class T, bool pooled>
struct FirstLayerKernels {
  void (*forward)(Previous, FirstLayerSizes, bool relu, const T* x, const T* weight, const T* bias, T* y,
                  uint8_t* winner);
  void (*weight_gradient)(Previous, FirstLayerSizes, int per_block, const T* x, PixelGradients<T, pooled> gradients,
                          float* partials);
};

// Blocks: those of a row have the same `way::channels` output channels.
template <class Way>
dim3 first_layer_blocks(const Conv2dSizes& s, int64_t blocks) {
  const int64_t channels = Way::channels(s);
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>((s.OC + channels - 1) / channels));
}

template <class Way, class Call>
void first_layer_forward(const Call& call) {
  constexpr int64_t max_blocks = 4096;
  const FirstLayerSizes sizes = FirstLayerSizes::windows(call.sizes, pools<Call>);
  const auto blocks = std::min<int64_t>((sizes.count + Way::windows - 1) / Way::windows, max_blocks);
  Way::for_type(call.x.dtype(), [&]<class T>() {
    launch(Way::template kernels<T, pools<Call>>(call.sizes).forward, first_layer_blocks<Way>(call.sizes, blocks),
           block_threads, 0, compute_stream(), sizes, has_relu(call), call.x.template data<T>(),
           call.weight.template data<T>(), call.bias.defined() ? call.bias.template data<T>() : nullptr,
           call.y.template mutable_data<T>(), winner_of(call));
  });
}

template <class Way, class Call>
FirstLayerParts parts_of(const Call& call) {
  return {call.sizes, pools<Call>, Way::max_parts, Way::least_of_part(pools<Call>)};
}

template <class Way, class Call>
void first_layer_backward(const Call& call, Tensor& workspace) {
  constexpr bool pooled = pools<Call>;
  const Conv2dSizes& s = call.sizes;
  const FirstLayerParts parts = parts_of<Way>(call);
  float* partials = parts.blocks ? reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()) : nullptr;
  Way::for_type(call.x.dtype(), [&]<class T>() {
    const auto gradients = gradients_of<T>(call);
    if (call.dx.defined()) {
      gather_input_gradient(s, gradients, call.weight.template data<T>(), call.dx.template mutable_data<T>());
    }
    if (!call.dweight.defined() && !call.dbias.defined()) return;
    launch(Way::template kernels<T, pooled>(s).weight_gradient, first_layer_blocks<Way>(s, parts.blocks), block_threads,
           0, compute_stream(), FirstLayerSizes::gradients(s, pooled), static_cast<int>(parts.per_block),
           call.x.template data<T>(), gradients, partials);
  });
  add_partials(call, workspace, parts.blocks);
}

// For REGISTER_KERNEL().
template <class Way, class Call>
constexpr typename Kernel<Call>::Options forward_by = {
    .run = first_layer_forward<Way, Call>, .supported = Way::template supports<Call>, .rank = Way::rank};
template <class Way, class Call>
constexpr typename Kernel<Call>::Options backward_by = {
    .run = first_layer_backward<Way, Call>,
    .supported = Way::template supports<Call>,
    .workspace = [](const Call& call) { return parts_of<Way>(call).bytes; },
    .rank = Way::rank};

}  // namespace hs::cuda
