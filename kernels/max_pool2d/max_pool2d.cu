#include "kernels/max_pool2d/max_pool2d.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

struct PoolSizes {
  int64_t N, H, W, C, OH, OW, window, stride;
};

// Position in a tensor (N, rows, columns, C) of pack i, of `packs` packs for each pixel.
struct Place {
  int64_t n, row, column, pack;
};
__device__ __forceinline__ Place place_of(int64_t i, int64_t rows, int64_t columns, int64_t packs) {
  const int64_t pixel = i / packs, line = pixel / columns, n = line / rows;
  return {n, line - n * rows, pixel - line * columns, i - pixel * packs};
}

// A thread computes one window of `width` neighbouring channels.
template <class T, int width>
__global__ void forward_kernel(PoolSizes s, const T* x, T* y, uint8_t* choice) {
  using Pack = cuda::Pack<T, width>;
  using Bytes = cuda::Pack<uint8_t, width>;
  const int64_t packs = s.C / width, count = s.N * s.OH * s.OW * packs;
  for (int64_t o = cuda::global_thread(); o < count; o += cuda::global_threads()) {
    const Place at = place_of(o, s.OH, s.OW, packs);
    const int64_t corner = ((at.n * s.H + at.row * s.stride) * s.W + at.column * s.stride) * packs + at.pack;
    const Pack* in = reinterpret_cast<const Pack*>(x) + corner;
    Pack best = *in;
    int where[width] = {};
    for (int row = 0, i = 0; row < s.window; ++row) {
      for (int column = 0; column < s.window; ++column, ++i) {
        const Pack pixel = in[(row * s.W + column) * packs];
#pragma unroll
        for (int c = 0; c < width; ++c) {
          const float value = cuda::to_f32(pixel.value[c]), largest = cuda::to_f32(best.value[c]);
          const bool better = !(value <= largest) && largest == largest;  // true for the first NaN
          if (better) best.value[c] = pixel.value[c];
          if (better) where[c] = i;
        }
      }
    }
    Bytes chosen;
#pragma unroll
    for (int c = 0; c < width; ++c) chosen.value[c] = static_cast<uint8_t>(where[c]);
    reinterpret_cast<Pack*>(y)[o] = best;
    reinterpret_cast<Bytes*>(choice)[o] = chosen;
  }
}

// The first and the last window, along one axis, that contain position `at`; none if first > last.
struct Windows {
  int64_t first, last;
};
__device__ __forceinline__ Windows windows_with(int64_t at, int64_t outputs, const PoolSizes& s) {
  return {at < s.window ? 0 : (at - s.window) / s.stride + 1, min(at / s.stride, outputs - 1)};
}

// A thread computes `width` neighbouring channels of one input pixel: it sums the gradients of the windows around it,
// in the order of the windows. No two threads write to the same place.
template <class T, int width>
__global__ void backward_kernel(PoolSizes s, const T* dy, const uint8_t* choice, T* dx) {
  using Pack = cuda::Pack<T, width>;
  using Bytes = cuda::Pack<uint8_t, width>;
  const int64_t packs = s.C / width, count = s.N * s.H * s.W * packs;
  for (int64_t i = cuda::global_thread(); i < count; i += cuda::global_threads()) {
    const Place at = place_of(i, s.H, s.W, packs);
    const Windows rows = windows_with(at.row, s.OH, s), columns = windows_with(at.column, s.OW, s);
    float sum[width] = {};
#pragma unroll 1  // most often there is one window, and copies of the body would cost registers
    for (int64_t oh = rows.first; oh <= rows.last; ++oh) {
#pragma unroll 1
      for (int64_t ow = columns.first; ow <= columns.last; ++ow) {
        const int64_t o = ((at.n * s.OH + oh) * s.OW + ow) * packs + at.pack;
        const int64_t here = (at.row - oh * s.stride) * s.window + at.column - ow * s.stride;
        const Pack gradient = reinterpret_cast<const Pack*>(dy)[o];
        const Bytes chosen = reinterpret_cast<const Bytes*>(choice)[o];
#pragma unroll
        for (int c = 0; c < width; ++c) {
          if (chosen.value[c] == here) sum[c] += cuda::to_f32(gradient.value[c]);
        }
      }
    }
    Pack result;
#pragma unroll
    for (int c = 0; c < width; ++c) result.value[c] = cuda::from_f32<T>(sum[c]);
    reinterpret_cast<Pack*>(dx)[i] = result;
  }
}

PoolSizes sizes_of(const Shape& x, const Shape& y, int64_t window, int64_t stride) {
  return {x[0], x[1], x[2], x[3], y[1], y[2], window, stride};
}

// Whether pixels are whole packs: a thread then processes 16 bytes of channels at once, otherwise one channel.
template <class T>
bool has_packs(int64_t C, const T* x, const T* y, const uint8_t* choice) {
  constexpr int N = cuda::pack_size<T>;
  return C % N == 0 && cuda::is_aligned<T, N>(x) && cuda::is_aligned<T, N>(y) && cuda::is_aligned<uint8_t, N>(choice);
}

void forward_cuda(const MaxPool2dForward& call) {
  const PoolSizes sizes = sizes_of(call.x.shape(), call.y.shape(), call.window, call.stride);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    constexpr int N = cuda::pack_size<T>;
    const T* in = call.x.data<T>();
    T* out = call.y.mutable_data<T>();
    uint8_t* chosen = call.choice.mutable_data<uint8_t>();
    const bool packed = has_packs(sizes.C, in, out, chosen);
    cuda::launch(packed ? forward_kernel<T, N> : forward_kernel<T, 1>,
                 cuda::blocks_for(call.y.size() / (packed ? N : 1)), cuda::block_threads, 0, cuda::compute_stream(),
                 sizes, in, out, chosen);
  });
}

void backward_cuda(const MaxPool2dBackward& call) {
  const PoolSizes sizes = sizes_of(call.dx.shape(), call.dy.shape(), call.window, call.stride);
  cuda::for_float_type(call.dy.dtype(), [&]<class T>() {
    constexpr int N = cuda::pack_size<T>;
    const T* dout = call.dy.data<T>();
    const uint8_t* chosen = call.choice.data<uint8_t>();
    T* din = call.dx.mutable_data<T>();
    const bool packed = has_packs(sizes.C, static_cast<const T*>(din), dout, chosen);
    cuda::launch(packed ? backward_kernel<T, N> : backward_kernel<T, 1>,
                 cuda::blocks_for(call.dx.size() / (packed ? N : 1)), cuda::block_threads, 0, cuda::compute_stream(),
                 sizes, dout, chosen, din);
  });
}

REGISTER_KERNEL(max_pool2d_forward, cuda, "simple",
                {.run = forward_cuda,
                 .supported = [](const MaxPool2dForward& call) { return cuda::is_float(call.x); }});
REGISTER_KERNEL(max_pool2d_backward, cuda, "simple",
                {.run = backward_cuda,
                 .supported = [](const MaxPool2dBackward& call) { return cuda::is_float(call.dy); }});

}  // namespace
}  // namespace hs
