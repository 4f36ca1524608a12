// conv2d on the GPU as im2col and a matrix product, the same idea as kernels/conv2d/im2col.cpp. The rows of the column
// matrix are zero-padded to a multiple of 8 values: tensor cores require rows aligned to 16 bytes. Images are processed
// in chunks, which bounds the size of the column matrix for every batch size.
#include <cuda_runtime.h>

#include "kernels/conv2d_pool_relu/input_gradient.cuh"
#include "kernels/gemm/gemm.h"

namespace hs {
namespace {

constexpr int64_t column_bytes = int64_t{64} << 20;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The sizes as both kernels divide by them. REQUIRES: none is 0; the pixels and the columns of a chunk have indices of
// 32 bits
struct ColumnSizes : cuda::GatherSizes {
  ColumnSizes(const Conv2dSizes& s, int64_t padded_row, int64_t width)
      : GatherSizes(s),
        by_KW(s.KW),
        by_OH(s.OH),
        by_OW(s.OW),
        packs(std::max<int64_t>(s.C / width, 1)),
        row_packs(padded_row / width) {}
  Divisor by_KW, by_OH, by_OW;
  Divisor packs, row_packs;  // of a pixel if it is whole packs, of a row of columns
};

// The place in x of output pixel `row` and tap `tap`, or nothing: in the padding, or beyond the kernel's taps, which
// the rows' own padding adds.
struct Pixel {
  uint32_t index;
  bool exists;
};
__device__ __forceinline__ Pixel pixel_of(const ColumnSizes& s, uint32_t n, int h0, int w0, uint32_t tap) {
  const auto [kh, kw] = s.by_KW.divide(tap);
  const int h = h0 + static_cast<int>(kh), w = w0 + static_cast<int>(kw);
  const bool exists = static_cast<int>(kh) < s.KH && h >= 0 && h < s.H && w >= 0 && w < s.W;
  return {(n * s.H + static_cast<uint32_t>(h)) * s.W + static_cast<uint32_t>(w), exists};
}

// columns (images*OH*OW, padded_K): each thread writes 16 bytes of a row. `wide`: they are 16 aligned bytes of x.
template <class T>
__global__ void im2col_kernel(cuda::Previous previous, ColumnSizes s, uint32_t packs, bool wide, const T* x,
                              T* columns) {
  previous.wait();
  constexpr int size = 16 / sizeof(T);
  for (uint32_t p = cuda::global_thread32(); p < packs; p += cuda::global_threads32()) {
    const auto [row, pack_of_row] = s.row_packs.divide(p);
    const auto [line, ow] = s.by_OW.divide(row);
    const auto [n, oh] = s.by_OH.divide(line);
    const int h0 = static_cast<int>(oh * s.stride) - s.padding, w0 = static_cast<int>(ow * s.stride) - s.padding;
    const uint32_t first = pack_of_row * size;
    cuda::Pack<T, size> pack;
    if (wide) {  // all of one pixel
      const auto [tap, c] = s.by_C.divide(first);
      const Pixel from = pixel_of(s, n, h0, w0, tap);
      if (from.exists) {
        pack = *reinterpret_cast<const cuda::Pack<T, size>*>(x + from.index * s.C + c);
      } else {
#pragma unroll
        for (int j = 0; j < size; ++j) pack.value[j] = cuda::from_f32<T>(0);
      }
    } else {
#pragma unroll
      for (int j = 0; j < size; ++j) {
        const auto [tap, c] = s.by_C.divide(first + j);
        const Pixel from = pixel_of(s, n, h0, w0, tap);
        pack.value[j] = from.exists ? x[from.index * s.C + c] : cuda::from_f32<T>(0);
      }
    }
    reinterpret_cast<cuda::Pack<T, size>*>(columns)[p] = pack;
  }
}

// The transpose, as a gather: each pixel sums the columns that it was copied to, in the order of the kernel's taps.
template <class T, int size>
__global__ void col2im_kernel(cuda::Previous previous, ColumnSizes s, uint32_t count, const T* columns, T* x) {
  previous.wait();
  using Pack = cuda::Pack<T, size>;
  for (uint32_t p = cuda::global_thread32(); p < count; p += cuda::global_threads32()) {
    const auto [pixel, pack_of_pixel] = s.packs.divide(p);
    float sum[size] = {};
    cuda::for_outputs(s, pixel, [&, first = pack_of_pixel](uint32_t n, int oh, int ow, int tap) {
      const uint32_t row = (n * s.OH + oh) * s.OW + ow;
      const Pack pack =
          reinterpret_cast<const Pack*>(columns)[row * s.row_packs.divisor() + tap * s.packs.divisor() + first];
#pragma unroll
      for (int j = 0; j < size; ++j) sum[j] += cuda::to_f32(pack.value[j]);
    });
    Pack out;
#pragma unroll
    for (int j = 0; j < size; ++j) out.value[j] = cuda::from_f32<T>(sum[j]);
    reinterpret_cast<Pack*>(x)[p] = out;
  }
}

struct AddTo {
  bool accumulate;
  __device__ float operator()(int64_t, float old, float sum) const { return (accumulate ? old : 0.0f) + sum; }
};

// Shared by both directions: the chunks of images, their columns, the weight with the rows that padding adds.
struct Im2col {
  const Conv2dSizes& s;
  const DType dtype;
  const int64_t sum_bytes;
  const Tensor* workspace = nullptr;  // nullptr: only counts
  const int64_t padded_K = round_up(s.K(), 8), pixels = s.OH * s.OW, element = static_cast<int64_t>(size_of(dtype));
  const int64_t chunk = std::clamp<int64_t>(  // images
      column_bytes / std::max<int64_t>(pixels * padded_K * element, 1), 1,
      images_per_launch("conv2d", s.N,
                        std::max({pixels * padded_K, s.H* s.W* s.C, s.H + 2 * s.padding, s.W + 2 * s.padding})));
  // The byte offsets of the workspace's parts; the columns begin at 0.
  const int64_t of_weight = round_up(chunk * pixels * padded_K * element, 256);
  const int64_t of_dweight = of_weight + round_up(padded_K * s.OC * element, 256);
  const int64_t of_sums = of_dweight + round_up(padded_K * s.OC * static_cast<int64_t>(sizeof(float)), 256);

  int64_t bytes() const { return of_sums + sum_bytes; }
  int64_t images(int64_t n) const { return std::min(chunk, s.N - n); }
  int64_t rows(int64_t n) const { return images(n) * pixels; }
  Tensor columns(int64_t n) const { return workspace->carve(0, {rows(n), padded_K}, dtype); }
  Tensor dweight() const { return workspace->carve(of_dweight, {padded_K, s.OC}, DType::f32); }
  Tensor sums() const { return workspace->carve(of_sums, {sum_bytes}, DType::u8); }
  // The part of y or dy (N, OH, OW, OC) that belongs to the chunk at image n, as a matrix.
  Tensor outputs(const Tensor& y, int64_t n) const { return y.slice(n * pixels * s.OC, {rows(n), s.OC}); }

  Tensor padded_weight(const Tensor& weight) const {
    if (padded_K == s.K()) return weight.detach();
    Tensor padded = workspace->carve(of_weight, {padded_K, s.OC}, dtype);
    padded.slice(0, {s.K(), s.OC}).copy_from(weight);
    padded.slice(s.K() * s.OC, {(padded_K - s.K()) * s.OC}).fill_zero();
    return padded;
  }

  void im2col(const Tensor& x, int64_t n) const {
    Tensor to = columns(n);
    if (to.size() == 0 || x.size() == 0) return to.fill_zero();  // all padding
    cuda::for_float_type(dtype, [&]<class T>() {
      constexpr int size = 16 / sizeof(T);
      const int64_t packs = to.size() / size;
      const T* from = x.data<T>() + n * s.H * s.W * s.C;
      const bool wide = s.C % size == 0 && cuda::is_aligned<T, size>(from);
      cuda::launch(im2col_kernel<T>, cuda::blocks_for(packs), cuda::block_threads, 0, cuda::compute_stream(),
                   ColumnSizes(s, padded_K, size), static_cast<uint32_t>(packs), wide, from, to.mutable_data<T>());
    });
  }

  void col2im(Tensor& dx, int64_t n) const {
    const Tensor from = columns(n);
    if (from.size() == 0 || dx.size() == 0) return;
    cuda::for_float_type(dtype, [&]<class T>() {
      constexpr int size = 16 / sizeof(T);
      const int64_t elements = images(n) * s.H * s.W * s.C;
      T* to = dx.mutable_data<T>() + n * s.H * s.W * s.C;
      const int width = s.C % size == 0 && cuda::is_aligned<T, size>(to) ? size : 1;
      cuda::launch(width == size ? col2im_kernel<T, size> : col2im_kernel<T, 1>, cuda::blocks_for(elements / width),
                   cuda::block_threads, 0, cuda::compute_stream(), ColumnSizes(s, padded_K, width),
                   static_cast<uint32_t>(elements / width), from.data<T>(), to);
    });
  }
};

int64_t forward_workspace(const Conv2dForward& call) { return Im2col{call.sizes, call.x.dtype(), 0}.bytes(); }

void forward_im2col(const Conv2dForward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const Im2col work{s, call.x.dtype(), 0, &workspace};
  const Tensor w = work.padded_weight(call.weight);
  for (int64_t n = 0; n < s.N; n += work.chunk) {
    work.im2col(call.x, n);
    Tensor out = work.outputs(call.y, n);
    gemm({.a = work.columns(n), .b = w, .bias = call.bias, .options = {.tf32 = s.tf32}, .c = out});
  }
}

int64_t sum_workspace(const Conv2dBackward& call) {
  return call.dbias.defined() ? column_sum.workspace({call.dy, call.accumulate, call.dbias}) : 0;
}

int64_t backward_workspace(const Conv2dBackward& call) {
  return Im2col{call.sizes, call.x.dtype(), sum_workspace(call)}.bytes();
}

void backward_im2col(const Conv2dBackward& call, Tensor& workspace) {
  const Conv2dSizes& s = call.sizes;
  const bool accumulate = call.accumulate;
  const Im2col work{s, call.x.dtype(), sum_workspace(call), &workspace};
  if (call.dbias.defined()) {
    Tensor sums = work.sums();
    column_sum.run_in(sums, {call.dy, accumulate, call.dbias});
  }
  if (call.dweight.defined()) {
    // Directly into an f32 gradient of the right height, otherwise through a separate sum.
    const bool direct = call.dweight.dtype() == DType::f32 && work.padded_K == s.K();
    Tensor sum = direct ? call.dweight : work.dweight();
    if (s.N == 0 && !(direct && accumulate)) sum.fill_zero();
    for (int64_t n = 0; n < s.N; n += work.chunk) {
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
    for (int64_t n = 0; n < s.N; n += work.chunk) {
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
