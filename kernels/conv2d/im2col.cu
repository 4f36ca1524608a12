// conv2d on the GPU as im2col and a matrix product, the same idea as kernels/conv2d/im2col.cpp. The rows of the column
// matrix are zero-padded to a multiple of 8 values: tensor cores require rows aligned to 16 bytes. Images are processed
// in chunks, which bounds the size of the column matrix for every batch size.
#include "kernels/conv2d/conv2d.h"

#include <cuda_runtime.h>

#include "kernels/bias_add/bias_add.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

constexpr int64_t column_bytes = int64_t{64} << 20;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The byte offsets of the workspace's parts.
struct Layout {
  Layout(const Conv2dSizes& s, DType dtype, int64_t sum_bytes) : padded_K(round_up(s.K(), 8)), pixels(s.OH * s.OW) {
    const auto element = static_cast<int64_t>(size_of(dtype));
    images = std::clamp<int64_t>(column_bytes / std::max<int64_t>(pixels * padded_K * element, 1), 1,
                                 std::max<int64_t>(s.N, 1));
    weight = round_up(images * pixels * padded_K * element, 256);
    dweight = weight + round_up(padded_K * s.OC * element, 256);
    sums = dweight + round_up(padded_K * s.OC * static_cast<int64_t>(sizeof(float)), 256);
    size = sums + sum_bytes;
  }
  int64_t padded_K, pixels;
  int64_t images;                       // per chunk
  int64_t weight, dweight, sums, size;  // the columns begin at 0
};

// columns (images*OH*OW, padded_K): each thread writes 16 bytes of a row. `wide`: they are 16 aligned bytes of x.
template <class T>
__global__ void im2col_kernel(Conv2dSizes s, int64_t padded_K, int64_t packs, bool wide, const T* x, T* columns) {
  constexpr int size = 16 / sizeof(T);
  const int64_t packs_per_row = padded_K / size;
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) {
    const int64_t row = p / packs_per_row;
    const int64_t first = p % packs_per_row * size;
    const int64_t n = row / (s.OH * s.OW), oh = row / s.OW % s.OH, ow = row % s.OW;
    const int64_t h0 = oh * s.stride - s.padding, w0 = ow * s.stride - s.padding;
    cuda::Pack<T, size> pack;
    if (wide) {  // all of one pixel
      const int64_t tap = first / s.C, h = h0 + tap / s.KW, w = w0 + tap % s.KW;
      const bool inside = h >= 0 && h < s.H && w >= 0 && w < s.W;
      const T* from = x + ((n * s.H + h) * s.W + w) * s.C + first % s.C;
      if (inside) {
        pack = *reinterpret_cast<const cuda::Pack<T, size>*>(from);
      } else {
#pragma unroll
        for (int j = 0; j < size; ++j) pack.value[j] = cuda::from_f32<T>(0);
      }
    } else {
#pragma unroll
      for (int j = 0; j < size; ++j) {
        const int64_t k = first + j, tap = k / s.C, h = h0 + tap / s.KW, w = w0 + tap % s.KW;
        const bool inside = k < s.K() && h >= 0 && h < s.H && w >= 0 && w < s.W;
        pack.value[j] = inside ? x[((n * s.H + h) * s.W + w) * s.C + k % s.C] : cuda::from_f32<T>(0);
      }
    }
    reinterpret_cast<cuda::Pack<T, size>*>(columns)[p] = pack;
  }
}

// The transpose, as a gather: each pixel sums the columns that it was copied to, in the order of the kernel's taps.
template <class T, int size>
__global__ void col2im_kernel(Conv2dSizes s, int64_t padded_K, int64_t packs, const T* columns, T* x) {
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) {
    const int64_t first = p * size, c = first % s.C, pixel = first / s.C;
    const int64_t w = pixel % s.W, h = pixel / s.W % s.H, n = pixel / (s.W * s.H);
    float sum[size] = {};
    for (int64_t kh = 0; kh < s.KH; ++kh) {
      const int64_t from_h = h + s.padding - kh, oh = from_h / s.stride;
      if (from_h < 0 || from_h % s.stride != 0 || oh >= s.OH) continue;
      for (int64_t kw = 0; kw < s.KW; ++kw) {
        const int64_t from_w = w + s.padding - kw, ow = from_w / s.stride;
        if (from_w < 0 || from_w % s.stride != 0 || ow >= s.OW) continue;
        const int64_t row = (n * s.OH + oh) * s.OW + ow;
        const auto pack =
            *reinterpret_cast<const cuda::Pack<T, size>*>(columns + row * padded_K + (kh * s.KW + kw) * s.C + c);
#pragma unroll
        for (int j = 0; j < size; ++j) sum[j] += cuda::to_f32(pack.value[j]);
      }
    }
    cuda::Pack<T, size> out;
#pragma unroll
    for (int j = 0; j < size; ++j) out.value[j] = cuda::from_f32<T>(sum[j]);
    reinterpret_cast<cuda::Pack<T, size>*>(x)[p] = out;
  }
}

struct AddTo {
  bool accumulate;
  __device__ float operator()(int64_t, float old, float sum) const { return (accumulate ? old : 0.0f) + sum; }
};

// Shared by both directions: the chunks of images, their columns, the weight with the rows that padding adds.
class Im2col {
 public:
  Im2col(const Conv2dSizes& s, DType dtype, int64_t sum_bytes, Tensor& workspace)
      : s_(s), dtype_(dtype), layout_(s, dtype, sum_bytes), workspace_(workspace) {}

  int64_t chunk() const { return layout_.images; }
  int64_t images(int64_t n) const { return std::min(chunk(), s_.N - n); }
  int64_t rows(int64_t n) const { return images(n) * layout_.pixels; }
  int64_t padded_K() const { return layout_.padded_K; }
  Tensor columns(int64_t n) const { return workspace_.carve(0, {rows(n), padded_K()}, dtype_); }
  Tensor dweight() const { return workspace_.carve(layout_.dweight, {padded_K(), s_.OC}, DType::f32); }
  Tensor sums() const { return workspace_.carve(layout_.sums, {layout_.size - layout_.sums}, DType::u8); }
  // The part of y or dy (N, OH, OW, OC) that belongs to the chunk at image n, as a matrix.
  Tensor outputs(const Tensor& y, int64_t n) const { return y.slice(n * layout_.pixels * s_.OC, {rows(n), s_.OC}); }

  Tensor padded_weight(const Tensor& weight) const {
    if (padded_K() == s_.K()) return weight.detach();
    Tensor padded = workspace_.carve(layout_.weight, {padded_K(), s_.OC}, dtype_);
    padded.slice(0, {s_.K(), s_.OC}).copy_from(weight);
    padded.slice(s_.K() * s_.OC, {(padded_K() - s_.K()) * s_.OC}).fill_zero();
    return padded;
  }

  void im2col(const Tensor& x, int64_t n) const {
    Tensor to = columns(n);
    cuda::for_float_type(dtype_, [&]<class T>() {
      constexpr int size = 16 / sizeof(T);
      const int64_t packs = to.size() / size;
      const T* from = x.data<T>() + n * s_.H * s_.W * s_.C;
      const bool wide = s_.C % size == 0 && cuda::is_aligned<T, size>(from);
      cuda::launch(im2col_kernel<T>, cuda::blocks_for(packs), cuda::block_threads, 0, cuda::compute_stream(), s_,
                   padded_K(), packs, wide, from, to.mutable_data<T>());
    });
  }

  void col2im(Tensor& dx, int64_t n) const {
    const Tensor from = columns(n);
    cuda::for_float_type(dtype_, [&]<class T>() {
      constexpr int size = 16 / sizeof(T);
      const int64_t elements = images(n) * s_.H * s_.W * s_.C;
      T* to = dx.mutable_data<T>() + n * s_.H * s_.W * s_.C;
      const bool wide = s_.C % size == 0 && cuda::is_aligned<T, size>(to);
      cuda::launch(wide ? col2im_kernel<T, size> : col2im_kernel<T, 1>,
                   cuda::blocks_for(wide ? elements / size : elements), cuda::block_threads, 0, cuda::compute_stream(),
                   s_, padded_K(), wide ? elements / size : elements, from.data<T>(), to);
    });
  }

 private:
  const Conv2dSizes& s_;
  const DType dtype_;
  const Layout layout_;
  Tensor& workspace_;
};

int64_t forward_workspace(const Conv2dForward& call) { return Layout(call.sizes, call.x.dtype(), 0).size; }

void forward_im2col(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Im2col work(s, call.x.dtype(), 0, workspace);
  const Tensor w = work.padded_weight(call.weight);
  for (int64_t n = 0; n < s.N; n += work.chunk()) {
    work.im2col(call.x, n);
    Tensor out = work.outputs(call.y, n);
    gemm({.a = work.columns(n), .b = w, .bias = call.bias, .options = {.tf32 = s.tf32}, .c = out});
  }
}

int64_t sum_workspace(const Conv2dBackward& call) {
  return call.dbias.defined() ? column_sum.workspace({call.dy, call.accumulate, call.dbias}) : 0;
}

int64_t backward_workspace(const Conv2dBackward& call) {
  return Layout(call.sizes, call.x.dtype(), sum_workspace(call)).size;
}

void backward_im2col(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const bool accumulate = call.accumulate;
  const Im2col work(s, call.x.dtype(), sum_workspace(call), workspace);
  if (call.dbias.defined()) {
    Tensor sums = work.sums();
    column_sum.run_in(sums, {call.dy, accumulate, call.dbias});
  }
  if (call.dweight.defined()) {
    // Directly into an f32 gradient of the right height, otherwise through a separate sum.
    const bool direct = call.dweight.dtype() == DType::f32 && work.padded_K() == s.K();
    Tensor sum = direct ? call.dweight : work.dweight();
    if (s.N == 0 && !(direct && accumulate)) sum.fill_zero();
    for (int64_t n = 0; n < s.N; n += work.chunk()) {
      work.im2col(call.x, n);
      const bool adds = n > 0 || (direct && accumulate);
      matmul_into(work.columns(n), work.outputs(call.dy, n),
                  {.transpose_a = true, .beta = adds ? 1.0f : 0.0f, .tf32 = s.tf32}, sum);
    }
    if (!direct) {
      cuda::for_float_type(call.dweight.dtype(), [&]<class T>() {
        T* to = call.dweight.mutable_data<T>();
        cuda::elementwise(call.dweight.size(), AddTo{accumulate}, to, static_cast<const T*>(to), sum.data<float>());
      });
    }
  }
  if (call.dx.defined()) {
    const Tensor w = work.padded_weight(call.weight);
    for (int64_t n = 0; n < s.N; n += work.chunk()) {
      Tensor columns = work.columns(n);
      matmul_into(work.outputs(call.dy, n), w, {.transpose_b = true, .tf32 = s.tf32}, columns);
      work.col2im(call.dx, n);
    }
  }
}

REGISTER_KERNEL(conv2d_forward, cuda, "im2col",
                {.run = forward_im2col,
                 .supported = [](const Conv2dForward& call) { return cuda::is_float(call.x) && without_relu(call); },
                 .workspace = forward_workspace});
REGISTER_KERNEL(conv2d_backward, cuda, "im2col",
                {.run = backward_im2col,
                 .supported = [](const Conv2dBackward& call) { return cuda::is_float(call.x) && without_relu(call); },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
