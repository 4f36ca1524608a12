#include "kernels/max_pool2d/max_pool2d.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// `packs`: those of a pixel, of as many channels as a thread processes at once.
struct PoolSizes {
  PoolSizes(const Shape& x, const Shape& y, int64_t pool_window, int64_t pool_stride, int64_t width)
      : H(x[1]),
        W(x[2]),
        OH(y[1]),
        OW(y[2]),
        packs(x[3] / width),
        stride(std::min(pool_stride, max_indices)),
        window(static_cast<uint32_t>(pool_window)) {}
  Divisor H, W, OH, OW, packs, stride;
  uint32_t window;
};

// Position in a tensor (N, rows, columns, C) of pack i.
struct Place {
  uint32_t n, row, column, pack;
};
__device__ __forceinline__ Place place_of(uint32_t i, const Divisor& rows, const Divisor& columns,
                                          const Divisor& packs) {
  const auto [pixel, pack] = packs.divide(i);
  const auto [line, column] = columns.divide(pixel);
  const auto [n, row] = rows.divide(line);
  return {n, row, column, pack};
}

// A thread computes one window of `width` neighbouring channels.
template <class T, int width>
__global__ void max_pool2d_forward_kernel(cuda::Previous previous, PoolSizes s, uint32_t count, const T* x, T* y,
                                          uint8_t* choice) {
  previous.wait();
  using Pack = cuda::Pack<T, width>;
  using Bytes = cuda::Pack<uint8_t, width>;
  const uint32_t W = s.W.divisor(), packs = s.packs.divisor(), stride = s.stride.divisor();
  for (uint32_t o = cuda::global_thread32(); o < count; o += cuda::global_threads32()) {
    const Place at = place_of(o, s.OH, s.OW, s.packs);
    const uint32_t corner = ((at.n * s.H.divisor() + at.row * stride) * W + at.column * stride) * packs + at.pack;
    const Pack* in = reinterpret_cast<const Pack*>(x) + corner;
    Pack best = *in;
    int where[width] = {};
    for (uint32_t row = 0, i = 0; row < s.window; ++row) {
      for (uint32_t column = 0; column < s.window; ++column, ++i) {
        const Pack pixel = in[(row * W + column) * packs];
#pragma unroll
        for (int c = 0; c < width; ++c) {
          const float value = cuda::to_f32(pixel.value[c]), largest = cuda::to_f32(best.value[c]);
          const bool better = !(value <= largest) && largest == largest;  // true for the first NaN
          if (better) best.value[c] = pixel.value[c];
          if (better) where[c] = static_cast<int>(i);
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
  uint32_t first, last;
};
__device__ __forceinline__ Windows windows_with(uint32_t at, const Divisor& outputs, const PoolSizes& s) {
  return {at < s.window ? 0 : s.stride.divide(at - s.window).quotient + 1,
          min(s.stride.divide(at).quotient, outputs.divisor() - 1)};
}

// A thread computes `width` neighbouring channels of one input pixel: it sums the gradients of the windows around it,
// in the order of the windows. No two threads write to the same place.
template <class T, int width>
__global__ void max_pool2d_backward_kernel(cuda::Previous previous, PoolSizes s, uint32_t count, T* dx, const T* dy,
                                           const uint8_t* choice) {
  previous.wait();
  using Pack = cuda::Pack<T, width>;
  using Bytes = cuda::Pack<uint8_t, width>;
  const uint32_t stride = s.stride.divisor();
  for (uint32_t i = cuda::global_thread32(); i < count; i += cuda::global_threads32()) {
    const Place at = place_of(i, s.H, s.W, s.packs);
    const Windows rows = windows_with(at.row, s.OH, s), columns = windows_with(at.column, s.OW, s);
    float sum[width] = {};
#pragma unroll 1  // most often there is one window, and copies of the body would cost registers
    for (uint32_t oh = rows.first; oh <= rows.last; ++oh) {
#pragma unroll 1
      for (uint32_t ow = columns.first; ow <= columns.last; ++ow) {
        const uint32_t o = ((at.n * s.OH.divisor() + oh) * s.OW.divisor() + ow) * s.packs.divisor() + at.pack;
        const uint32_t here = (at.row - oh * stride) * s.window + at.column - ow * stride;
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

// Gets x, y and choice.
template <class X, class Y, class Choice>
using PoolKernel = void (*)(cuda::Previous, PoolSizes, uint32_t, X*, Y*, Choice*);

// Launches a kernel that has a thread for each pack of `of_threads`, x or y, for as many images at a time as it can
// process: `wide`, with 16 bytes of channels, if pixels are whole packs, otherwise `single`, with one channel.
template <class X, class Y, class Choice>
void launch_pool(const Shape& x, const Shape& y, int64_t window, int64_t stride, const Shape& of_threads,
                 PoolKernel<X, Y, Choice> wide, PoolKernel<X, Y, Choice> single, X* in, Y* out, Choice* chosen) {
  constexpr int N = cuda::pack_size<X>;
  const bool has_packs =
      x[3] % N == 0 && cuda::is_aligned<X, N>(in) && cuda::is_aligned<Y, N>(out) && cuda::is_aligned<Choice, N>(chosen);
  const int width = has_packs ? N : 1;
  const int64_t image_in = x[1] * x[2] * x[3], image_out = y[1] * y[2] * y[3];
  const int64_t step = images_per_launch("max_pool2d", x[0], image_in);
  for (int64_t n = 0; x.size() > 0 && n < x[0]; n += step) {
    const int64_t count = std::min(step, x[0] - n) * (of_threads.size() / x[0]) / width;
    cuda::launch(has_packs ? wide : single, cuda::blocks_for(count), cuda::block_threads, 0, cuda::compute_stream(),
                 PoolSizes(x, y, window, stride, width), static_cast<uint32_t>(count), in + n * image_in,
                 out + n * image_out, chosen + n * image_out);
  }
}

void forward_cuda(const MaxPool2dForward& call) {
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    launch_pool(call.x.shape(), call.y.shape(), call.window, call.stride, call.y.shape(),
                max_pool2d_forward_kernel<T, cuda::pack_size<T>>, max_pool2d_forward_kernel<T, 1>, call.x.data<T>(),
                call.y.mutable_data<T>(), call.choice.mutable_data<uint8_t>());
  });
}

void backward_cuda(const MaxPool2dBackward& call) {
  cuda::for_float_type(call.dy.dtype(), [&]<class T>() {
    launch_pool(call.dx.shape(), call.dy.shape(), call.window, call.stride, call.dx.shape(),
                max_pool2d_backward_kernel<T, cuda::pack_size<T>>, max_pool2d_backward_kernel<T, 1>,
                call.dx.mutable_data<T>(), call.dy.data<T>(), call.choice.data<uint8_t>());
  });
}

REGISTER_KERNEL(max_pool2d_forward, cuda, "simple", {.run = forward_cuda, .supported = cuda::takes_floats});
REGISTER_KERNEL(max_pool2d_backward, cuda, "simple", {.run = backward_cuda, .supported = cuda::takes_floats});

}  // namespace
}  // namespace hs
