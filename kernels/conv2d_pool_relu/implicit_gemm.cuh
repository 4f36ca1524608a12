// Shared by mma.cu and mma_backward.cu: conv2d_pool_relu as matrix products whose matrices exist only in shared memory.
//
// im2col (kernels/conv2d/im2col.cu) writes each pixel into nine rows of a matrix, 9 times the bytes of x, and reads
// them back. But a row of that matrix is a few runs of neighbouring numbers of x, and ldmatrix takes an address for
// each row of 8 numbers. So a block copies a band of an image into shared memory once, and the tap (kh, kw) of the
// field is nothing but an offset that is added to the addresses:
//
//    image in shared memory             A of tap (kh, kw), one row per pixel
//    + - - - - - - - +                  pixel 0:  tile[h + kh    ][w + kw    ][c .. c + 15]
//    | p0 p1 . . . . |                  pixel 1:  tile[h + kh    ][w + kw + 1][c .. c + 15]
//    | p2 p3 . . . . |      ------>     ...
//    | .  .  . . . . |                  (never stored)
//    + - - - - - - - +
//
// Between two pixels lies an odd number of 16-byte chunks, so that 8 rows are 8 different eighths of the banks.
// .cu files only.
#pragma once

#include "kernels/conv2d_pool_relu/pooled.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/shared.cuh"
#include "kernels/dropout/dropout.cuh"

namespace hs::cuda {

inline constexpr int mma_depth = 16;               // channels that one instruction multiplies
inline constexpr int chunk = 8;                    // values in 16 bytes
inline constexpr int64_t shared_limit = 48 << 10;  // bytes that a block gets without asking for more
inline constexpr int tile_c = 32, tile_oc = 64;    // channels of a block
inline constexpr int max_warps = 8, max_taps = 16;

constexpr int64_t pitch_of(int64_t channels) { return (channels / chunk | 1) * chunk; }

// The position of a chunk in a tile of shared memory, (rows, chunks), permuted so that 8 rows of a column are 8
// different eighths of the banks. chunks: 2, 4 or 8
template <int chunks>
__device__ __forceinline__ int chunk_place(int row, int part) {
  const auto r = static_cast<uint32_t>(row);
  return static_cast<int>((r * chunks + (part ^ r / (8 / chunks) % chunks)) * chunk);
}

// An image is processed in bands of at most `rows` rows, as equal as possible. 0: not even one row fits.
struct Bands {
  template <class Bytes>
  Bands(int64_t image_rows, int64_t max_rows, const Bytes& bytes_of) : rows(std::min(image_rows, max_rows)) {
    while (rows > 0 && bytes_of(rows) > shared_limit) --rows;
    if (rows <= 0) return;
    count = (image_rows + rows - 1) / rows;
    rows = (image_rows + count - 1) / count;
    bytes = bytes_of(rows);
  }
  int64_t rows, count = 0;
  int64_t bytes = 0;  // of shared memory
};

// Forward: rows of windows, at most 8 windows for each warp.
inline constexpr int y_pitch = tile_oc + chunk, winner_pitch = (tile_oc + 16) / 2;  // in T, in pairs of bytes
inline Bands forward_bands(const Conv2dSizes& s) {
  return {s.OH / 2, max_warps * 8 / std::max<int64_t>(s.OW / 2, 1), [&](int64_t rows) {
            const int64_t columns = (s.OW / 2 * 2 + s.KW) / 2 * 2;  // even and odd ones apart, as many of both
            const int64_t tile = (2 * rows + s.KH - 1) * columns * pitch_of(s.C), weights = 2 * s.C * tile_oc;
            const int64_t warps = (rows * (s.OW / 2) + 7) / 8, results = warps * 8 * (y_pitch + winner_pitch);
            return 2 * std::max(tile + weights, results);
          }};
}

// Input gradient: rows of x, at most 32 pixels for each warp.
inline constexpr int dx_pitch = tile_c + chunk;
inline Bands input_gradient_bands(const Conv2dSizes& s) {
  return {s.H, max_warps * 32 / std::max<int64_t>(s.W, 1), [&](int64_t rows) {
            const int64_t dense = (rows + s.KH - 1) * (s.W + s.KW - 1), weights = 2 * tile_c;
            const int64_t warps = (rows * s.W + 31) / 32;
            return 2 * std::max((dense + weights) * pitch_of(s.OC), warps * 32 * dx_pitch);
          }};
}

// Weight gradient: rows of windows.
constexpr int64_t dense_pixels(const Conv2dSizes& s, int64_t rows) {  // a multiple of the instruction's depth
  return (2 * rows * (s.OW / 2 * 2) + mma_depth - 1) / mma_depth * mma_depth;
}
inline Bands weight_gradient_bands(const Conv2dSizes& s) {
  return {s.OH / 2, s.OH / 2, [&](int64_t rows) {
            const int64_t tile = (2 * rows + s.KH - 1) * (s.OW / 2 * 2 + s.KW - 1);
            return 2 * (tile * pitch_of(tile_c) + dense_pixels(s, rows) * tile_oc);
          }};
}

// Images that each block of the weight gradient sums, and blocks: by the shapes alone. Two blocks for each
// multiprocessor of an H100, nearly, where each then has a few images; otherwise one, because of the partial gradients.
struct ImageGroups {
  explicit ImageGroups(const Conv2dSizes& s) {
    constexpr int64_t one = 128, two = 2 * one, few = 4;
    images = std::max<int64_t>({(s.N + two - 1) / two, std::min((s.N + one - 1) / one, few), 1});
    count = (s.N + images - 1) / images;
    bytes = count * (s.K() + 1) * s.OC * static_cast<int64_t>(sizeof(float));
  }
  int64_t images, count, bytes;
};

// Forward and backward both, so that what one of them keeps suits the other.
template <class Call>
bool mma_supports(const Call& call) {
  const Conv2dSizes& s = call.sizes;
  const bool channels = s.C % mma_depth == 0 && s.OC % mma_depth == 0 && s.C > 0 && s.OC > 0;
  const bool small = s.H * s.W * std::max(s.C, s.OC) <= max_indices && s.KH * s.KW <= max_taps &&
                     s.KH * s.KW * 32 >= tile_oc && s.padding < max_indices / 2 && s.OH >= 2 && s.OW >= 2;
  if (!is_16_bit(call.x) || s.stride != 1 || !channels || !small || !are_aligned(call.tensors())) return false;
  const Bands bands[] = {forward_bands(s), input_gradient_bands(s), weight_gradient_bands(s)};
  return std::all_of(std::begin(bands), std::end(bands),
                     [&](const Bands& b) { return b.rows > 0 && s.N * b.count <= max_indices; });
}

// A band of an image in shared memory.
struct ImageTile {
  Divisor chunks, columns;
  int rows, row_pixels, pitch;
  int odd;  // where the columns of odd index begin; 0: columns are in order
  __device__ __forceinline__ int place(int column) const { return odd ? column / 2 + column % 2 * odd : column; }
};

// Starts copying; (h0, w0): the tile's corner in the image, possibly in the padding, which becomes zeros. So do
// channels beyond the image's.
template <class T>
__device__ __forceinline__ void copy_image(SharedPointer<T> to, const ImageTile& tile, const ConvSizes& s,
                                           const T* image, int h0, int w0, int c0) {
  const uint32_t count = tile.rows * tile.columns.divisor() * tile.chunks.divisor();
  for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const auto [pixel, part] = tile.chunks.divide(i);
    const auto [row, column] = tile.columns.divide(pixel);
    const int h = h0 + static_cast<int>(row), w = w0 + static_cast<int>(column);
    const int c = c0 + static_cast<int>(part) * chunk;
    const bool inside = h >= 0 && h < s.H && w >= 0 && w < s.W && c < s.C;
    const int place = static_cast<int>(row) * tile.row_pixels + tile.place(static_cast<int>(column));
    cp_async_16(to + (place * tile.pitch + static_cast<int>(part) * chunk),
                inside ? image + (h * s.W + w) * s.C + c : image, inside ? 16 : 0);
  }
}

// Stores the gradient of the convolution at the pixels of a window, 8 channels from oc: dy times `factor` for the one
// that won, zeros for the others, and for all if the image has no such window. dy and winner: of one image.
// store(place, values): by value, because of a reference nvcc stores each by itself.
template <class T, class Store>
__device__ __forceinline__ void store_window(const ConvSizes& s, const T* dy, const uint8_t* winner, float factor,
                                             int ph, int pw, int oc, const Store& store) {
  const bool exists = ph >= 0 && ph < s.PH && pw >= 0 && pw < s.PW && oc < s.OC;
  const int at = exists ? (ph * s.PW + pw) * s.OC + oc : 0, first = exists ? 0 : closed + 1;
  auto g = load_vector<Pack<T, chunk>>(dy + at);
  const auto won = load_vector<Pack<uint32_t, chunk / 4>>(winner + at);  // as bytes, nvcc takes them apart
  if (factor != 1) {
#pragma unroll
    for (int j = 0; j < chunk; ++j) g.value[j] = scaled(g.value[j], factor);
  }
#pragma unroll 2  // four would need too many registers
  for (int place = 0; place < 4; ++place) store(place, won_by(first + place, g, won));
}

// The two 8-column halves of what ldmatrix loaded for 16 columns of B.
template <class T, int rows>
__device__ __forceinline__ void multiply_16_columns(float (&sum)[rows][4], float (&next)[rows][4],
                                                    const uint32_t (&a)[rows][4], const uint32_t (&b)[4]) {
  const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
#pragma unroll
  for (int i = 0; i < rows; ++i) mma_m16n8k16<Native<T>>(sum[i], a[i], first, sum[i]);
#pragma unroll
  for (int i = 0; i < rows; ++i) mma_m16n8k16<Native<T>>(next[i], a[i], second, next[i]);
}

}  // namespace hs::cuda
