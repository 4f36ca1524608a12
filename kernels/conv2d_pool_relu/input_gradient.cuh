// The input gradient as a gather, one thread for each element of dx: no two threads write to the same place. A thread
// visits the pixels of the convolution that its element was multiplied into, and asks each for its gradient:
//
//   pooled       dy of its window, if `winner` names this pixel, otherwise 0
//   not pooled   dy of the pixel, or 0 where ReLU made y zero
//
// .cu files only.
#pragma once

#include "kernels/conv2d_pool_relu/pooled.cuh"
#include "kernels/dropout/dropout.cuh"

namespace hs::cuda {

// They are divided by, so none is 0.
struct GatherSizes : ConvSizes {
  explicit GatherSizes(const Conv2dSizes& s)
      : ConvSizes(conv_sizes(s)), by_H(s.H), by_W(s.W), by_C(s.C), by_stride(stride) {}
  Divisor by_H, by_W, by_C, by_stride;
};

// Calls body(image, oh, ow, tap) for the pixels of the convolution that `pixel` of x was multiplied into, in the order
// of the kernel's taps.
template <class Body>
__device__ __forceinline__ void for_outputs(const GatherSizes& s, uint32_t pixel, const Body& body) {
  const auto [line, w] = s.by_W.divide(pixel);
  const auto [n, h] = s.by_H.divide(line);
  for (int kh = 0; kh < s.KH; ++kh) {
    const int from_h = static_cast<int>(h) + s.padding - kh;
    if (from_h < 0) break;  // and so are those of the taps behind
    const auto [oh, beside_h] = s.by_stride.divide(static_cast<uint32_t>(from_h));
    if (beside_h != 0 || static_cast<int>(oh) >= s.OH) continue;
    for (int kw = 0; kw < s.KW; ++kw) {
      const int from_w = static_cast<int>(w) + s.padding - kw;
      if (from_w < 0) break;
      const auto [ow, beside_w] = s.by_stride.divide(static_cast<uint32_t>(from_w));
      if (beside_w != 0 || static_cast<int>(ow) >= s.OW) continue;
      body(n, static_cast<int>(oh), static_cast<int>(ow), kh * s.KW + kw);
    }
  }
}

// What is known of the gradient of the convolution. mask: `winner` (u8) if pooled, otherwise y after ReLU, or nullptr.
template <class T, bool pooled>
struct PixelGradients {
  using Mask = std::conditional_t<pooled, uint8_t, T>;
  const T* dy;
  const Mask* mask;
  float factor = 1;  // of dy

  // Of pixel (oh, ow) of image n, channel oc.
  __device__ __forceinline__ float at(const ConvSizes& s, uint32_t n, int oh, int ow, int oc) const {
    if constexpr (pooled) {
      if (oh >= 2 * s.PH || ow >= 2 * s.PW) return 0;  // in no window
      const int64_t i = ((int64_t{n} * s.PH + oh / 2) * s.PW + ow / 2) * s.OC + oc;
      return mask[i] == oh % 2 * 2 + ow % 2 ? to_f32(scaled(dy[i], factor)) : 0.0f;
    } else {
      const int64_t i = ((int64_t{n} * s.OH + oh) * s.OW + ow) * s.OC + oc;
      return mask && to_f32(mask[i]) <= 0 ? 0.0f : to_f32(dy[i]);  // not of NaN, which is kept
    }
  }
};

template <class T, bool pooled>
__global__ void input_gradient_kernel(Previous previous, GatherSizes s, uint32_t count,
                                      PixelGradients<T, pooled> gradients, const T* weight, T* dx) {
  previous.wait();
  for (uint32_t i = global_thread32(); i < count; i += global_threads32()) {
    const auto [pixel, c] = s.by_C.divide(i);
    float sum = 0;
    for_outputs(s, pixel, [&, channel = c](uint32_t n, int oh, int ow, int tap) {
      const T* row = weight + (int64_t{tap} * s.C + channel) * s.OC;
      for (int oc = 0; oc < s.OC; ++oc) {
        const float g = gradients.at(s, n, oh, ow, oc);
        if (g != 0) sum += g * to_f32(row[oc]);
      }
    });
    dx[i] = from_f32<T>(sum);
  }
}

// Calls body(first image, images) for as many images as a launch can process, until all are.
template <class Body>
void for_image_chunks(const Conv2dSizes& s, const Body& body) {
  const int64_t step = images_per_launch("conv2d", s.N, std::max(s.H * s.W * s.C, s.OH * s.OW * s.OC));
  for (int64_t n = 0; n < s.N; n += step) body(n, std::min(step, s.N - n));
}

// dx (N, H, W, C) from the gradients of the whole tensor.
template <class T, bool pooled>
void gather_input_gradient(const Conv2dSizes& s, PixelGradients<T, pooled> gradients, const T* weight, T* dx) {
  if (s.H * s.W * s.C == 0) return;
  const int64_t image = s.H * s.W * s.C;
  const int64_t outputs = pooled ? (s.OH / 2) * (s.OW / 2) * s.OC : s.OH * s.OW * s.OC;
  for_image_chunks(s, [&](int64_t n, int64_t images) {
    auto part = gradients;
    part.dy += n * outputs;
    if (part.mask) part.mask += n * outputs;
    launch(input_gradient_kernel<T, pooled>, blocks_for(images * image), block_threads, 0, compute_stream(),
           GatherSizes(s), static_cast<uint32_t>(images * image), part, weight, dx + n * image);
  });
}

}  // namespace hs::cuda
