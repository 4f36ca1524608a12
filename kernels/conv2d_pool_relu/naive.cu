// conv2d_pool_relu on the GPU by its definition, and dropout behind it. Read it first, then kernels/conv2d/direct.cu
// and implicit_gemm.cuh.
//
//   forward    one thread for each pooled value: four sums over the field, the largest of them, ReLU
//   dx         one thread for each element of x (input_gradient.cuh)
//   dweight    one thread for each element, over all windows of all images: the pixel that won, times dy
//
// Every product reads two numbers from memory, so it is slower than the three ops: it runs only where it is forced.
#include <cuda_runtime.h>

#include "kernels/conv2d_pool_relu/input_gradient.cuh"

namespace hs {
namespace {

using cuda::ConvSizes;

template <class T>
__global__ void naive_forward_kernel(ConvSizes s, uint32_t count, const T* x, const T* weight, const T* bias,
                                     cuda::DropoutMasker dropped, int64_t first, T* y, uint8_t* winner) {
  const uint32_t OC = s.OC, PW = s.PW, PH = s.PH;
  const int H = s.H, W = s.W, C = s.C;
  for (uint32_t i = cuda::global_thread32(); i < count; i += cuda::global_threads32()) {
    const int oc = i % OC, pw = i / OC % PW, ph = i / OC / PW % PH;
    const T* image = x + int64_t{i / OC / PW / PH} * H * W * C;
    float best = 0;
    uint8_t where = 0;
    for (int place = 0; place < 4; ++place) {
      const int h0 = (2 * ph + place / 2) * s.stride - s.padding, w0 = (2 * pw + place % 2) * s.stride - s.padding;
      float sum = bias ? cuda::to_f32(bias[oc]) : 0.0f;
      for (int kh = max(0, -h0); kh < min(s.KH, H - h0); ++kh) {
        for (int kw = max(0, -w0); kw < min(s.KW, W - w0); ++kw) {
          const T* in = image + ((h0 + kh) * W + w0 + kw) * C;
          const T* row = weight + int64_t{kh * s.KW + kw} * C * s.OC + oc;
          for (int c = 0; c < C; ++c) sum += cuda::to_f32(in[c]) * cuda::to_f32(row[int64_t{c} * s.OC]);
        }
      }
      if (place == 0 || (!(sum <= best) && best == best)) {  // true for the first NaN
        best = sum;
        where = static_cast<uint8_t>(place);
      }
    }
    const bool is_closed = best <= 0;  // false for NaN, which is kept
    y[i] = cuda::from_f32<T>(is_closed ? 0.0f : best);
    winner[i] = is_closed ? closed : where;
    if (!dropped.drops()) continue;
    const Random4 random = dropped.block((first + i) / dropout_group);
    const int place = (first + i) % dropout_group;
    y[i] = dropped.masked(random, place, y[i]);
    if (!dropped.keeps(random, place)) winner[i] = closed;
  }
}

// Row K is the bias gradient. Images one after another, and their windows row by row.
template <class T, class Out>
__global__ void naive_weight_gradient_kernel(ConvSizes s, int64_t N, int64_t size, bool accumulate, const T* x,
                                             const T* dy, const uint8_t* winner, float dy_factor, Out* dweight,
                                             Out* dbias) {
  const uint32_t i = cuda::global_thread32(), OC = s.OC;
  if (i >= size) return;
  const int oc = i % OC, k = i / OC, c = k % s.C, kw = k / s.C % s.KW, kh = k / s.C / s.KW;
  const int64_t windows = int64_t{s.PH} * s.PW;
  float sum = 0;
  for (int64_t n = 0; n < N; ++n, x += int64_t{s.H} * s.W * s.C) {
    for (int window = 0; window < windows; ++window) {
      const int64_t at = (n * windows + window) * s.OC + oc;
      const int place = winner[at];
      const float g = cuda::to_f32(cuda::scaled(dy[at], dy_factor));
      if (place == closed || g == 0) continue;
      const int h = (window / s.PW * 2 + place / 2) * s.stride - s.padding + kh;
      const int w = (window % s.PW * 2 + place % 2) * s.stride - s.padding + kw;
      if (kh == s.KH) {
        sum += g;
      } else if (h >= 0 && h < s.H && w >= 0 && w < s.W) {
        sum += g * cuda::to_f32(x[(h * s.W + w) * s.C + c]);
      }
    }
  }
  Out* to = kh == s.KH ? dbias : dweight;
  const uint32_t first = kh == s.KH ? i - oc : 0;
  if (to) to[i - first] = cuda::from_f32<Out>((accumulate ? cuda::to_f32(to[i - first]) : 0.0f) + sum);
}

void forward_naive(const Conv2dPoolReluForward& call) {
  const Conv2dSizes& s = call.sizes;
  const cuda::DropoutMasker dropped(call.dropped ? *call.dropped : DropoutRule());
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const int64_t pooled = (s.OH / 2) * (s.OW / 2) * s.OC, image = s.H * s.W * s.C;
    cuda::for_image_chunks(s, [&](int64_t n, int64_t images) {
      cuda::launch(naive_forward_kernel<T>, cuda::blocks_for(images * pooled), cuda::block_threads, 0,
                   cuda::compute_stream(), cuda::conv_sizes(s), static_cast<uint32_t>(images * pooled),
                   call.x.data<T>() + n * image, call.weight.data<T>(),
                   call.bias.defined() ? call.bias.data<T>() : nullptr, dropped, n * pooled,
                   call.y.mutable_data<T>() + n * pooled, call.winner.mutable_data<uint8_t>() + n * pooled);
    });
  });
}

void backward_naive(const Conv2dPoolReluBackward& call) {
  const Conv2dSizes& s = call.sizes;
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T* dy = call.dy.data<T>();
    const uint8_t* winner = call.winner.data<uint8_t>();
    if (call.dx.defined()) {
      cuda::gather_input_gradient<T, true>(s, {dy, winner, call.dy_factor}, call.weight.data<T>(),
                                           call.dx.mutable_data<T>());
    }
    if (!call.dweight.defined() && !call.dbias.defined()) return;
    cuda::for_float_type((call.dweight.defined() ? call.dweight : call.dbias).dtype(), [&]<class Out>() {
      const int64_t size = (s.K() + 1) * s.OC;
      cuda::launch(naive_weight_gradient_kernel<T, Out>,
                   static_cast<unsigned>((size + cuda::block_threads - 1) / cuda::block_threads), cuda::block_threads,
                   0, cuda::compute_stream(), cuda::conv_sizes(s), s.N, size, call.accumulate, call.x.data<T>(), dy,
                   winner, call.dy_factor, call.dweight.defined() ? call.dweight.mutable_data<Out>() : nullptr,
                   call.dbias.defined() ? call.dbias.mutable_data<Out>() : nullptr);
    });
  });
}

template <class Call>
bool supports(const Call& call) {
  const Conv2dSizes& s = call.sizes;
  return cuda::is_float(call.x) && s.H * s.W * s.C > 0 && (s.K() + 1) * s.OC <= max_indices && s.stride <= max_indices;
}

REGISTER_KERNEL(conv2d_pool_relu_forward, cuda, "naive",
                {.run = forward_naive, .supported = supports<Conv2dPoolReluForward>, .rank = only_if_forced});
REGISTER_KERNEL(conv2d_pool_relu_backward, cuda, "naive",
                {.run = backward_naive, .supported = supports<Conv2dPoolReluBackward>, .rank = only_if_forced});

}  // namespace
}  // namespace hs
