// Shared by the CUDA kernels: dispatch over the element types, conversion to f32 and back (every kernel computes in
// f32, whatever it stores), and element-wise kernels that move 16 bytes at a time. .cu files only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "engine/cuda.cuh"
#include "engine/kernel.h"
#include "engine/tensor.h"
#include "kernels/cuda/index.h"
#include "kernels/cuda/shared.cuh"

namespace hs::cuda {

inline bool is_16_bit(const Tensor& x) { return x.dtype() == DType::f16 || x.dtype() == DType::bf16; }
inline bool is_float(const Tensor& x) { return x.dtype() == DType::f32 || is_16_bit(x); }
// For `supported`: asks the type of a call's first tensor.
inline constexpr auto takes_floats = [](const auto& call) { return is_float(*call.tensors().front()); };

// Calls body.operator()<T>() with T = Half or BFloat16. REQUIRES: is_16_bit for this dtype; variants say so in
// `supported`.
template <class Body>
void for_16_bits(DType dtype, const Body& body) {
  dtype == DType::f16 ? body.template operator()<Half>() : body.template operator()<BFloat16>();
}
// The same with T = float, Half or BFloat16. REQUIRES: is_float for this dtype
template <class Body>
void for_float_type(DType dtype, const Body& body) {
  dtype == DType::f32 ? body.template operator()<float>() : for_16_bits(dtype, body);
}

// Whether they have one of these types both, or x is f32 and y has 16 bits.
inline bool is_float_or_narrower(const Tensor& x, const Tensor& y) {
  return is_float(x) && (y.dtype() == x.dtype() || (x.dtype() == DType::f32 && is_float(y)));
}
// Calls body.operator()<T, N>() with their types. REQUIRES: is_float_or_narrower
template <class Body>
void for_float_type(const Tensor& x, const Tensor& y, const Body& body) {
  for_float_type(y.dtype(), [&]<class N>() {
    x.dtype() == y.dtype() ? body.template operator()<N, N>() : body.template operator()<float, N>();
  });
}

__device__ __forceinline__ float to_f32(float value) { return value; }
__device__ __forceinline__ float to_f32(uint8_t value) { return static_cast<float>(value); }
__device__ __forceinline__ float to_f32(Half value) { return __half2float(__ushort_as_half(value.bits)); }
__device__ __forceinline__ float to_f32(BFloat16 value) { return __bfloat162float(__ushort_as_bfloat16(value.bits)); }

// To the nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_f32(float value);
template <>
__device__ __forceinline__ float from_f32<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ Half from_f32<Half>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}
template <>
__device__ __forceinline__ BFloat16 from_f32<BFloat16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

// CUDA's own name for a 16-bit type.
template <class T>
using Native = std::conditional_t<std::is_same_v<T, Half>, __half, __nv_bfloat16>;

// Position of this thread in the whole launch, and how many there are. 64 bits: a tensor may have more than 2^31
// elements. Kernels that divide an index use 32 bits (kernels/cuda/index.h); blocks_for() keeps both in their range.
__device__ __forceinline__ int64_t global_thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t global_threads() { return int64_t{gridDim.x} * blockDim.x; }
__device__ __forceinline__ uint32_t global_thread32() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ uint32_t global_threads32() { return gridDim.x * blockDim.x; }

inline constexpr int block_threads = 256;

// Blocks for `items` of work, one item per thread up to a limit; beyond it threads process several (a loop from
// global_thread() in steps of global_threads()). 0 for no work.
inline unsigned blocks_for(int64_t items) {
  constexpr int64_t most = 4096;  // 31 blocks for each multiprocessor of an H100
  return static_cast<unsigned>(std::min((items + block_threads - 1) / block_threads, most));
}

// N elements that are loaded and stored at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

template <class T, int N>
bool is_aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(Pack<T, N>) == 0;
}

// Whether all tensors of a call that are defined may be read and written 16 bytes at a time from their beginning on.
inline bool are_aligned(CallTensors tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor* tensor) {
    return !tensor->defined() || reinterpret_cast<uintptr_t>(tensor->raw_data()) % 16 == 0;
  });
}

// The widest pack of which no operand exceeds 16 bytes.
template <class... T>
inline constexpr int pack_size = static_cast<int>(16 / std::max({sizeof(T)...}));

// Calls body.operator()<N>() with as many elements of rows of C as 16 bytes of type T have, if they divide C and each
// operand begins at a multiple of 16 bytes; else with 1.
template <class T, class Body, class... Operands>
void for_pack_size(int64_t C, const Body& body, const Operands*... operands) {
  constexpr int N = pack_size<T>;
  if (C % N == 0 && ((reinterpret_cast<uintptr_t>(operands) % 16 == 0) && ...)) {
    body.template operator()<N>();
  } else {
    body.template operator()<1>();
  }
}

// N numbers in registers.
template <int N>
struct Floats {
  __device__ __forceinline__ float& operator[](int j) { return value[j]; }
  __device__ __forceinline__ float operator[](int j) const { return value[j]; }
  float value[N];
};

// N neighbouring elements as f32, 16 bytes at a time. REQUIRES: N is that of for_pack_size()
template <int N, class T>
__device__ __forceinline__ Floats<N> load(const T* from) {
  constexpr int M = std::min(N, pack_size<T>);
  Floats<N> to;
#pragma unroll
  for (int i = 0; i < N; i += M) {
    const auto pack = load_vector<Pack<T, M>>(from + i);
#pragma unroll
    for (int j = 0; j < M; ++j) to[i + j] = to_f32(pack.value[j]);
  }
  return to;
}
// The same back, to T* or SharedPointer<T>.
template <class T, int N, class Pointer>
__device__ __forceinline__ void store(const Floats<N>& from, Pointer to) {
  constexpr int M = std::min(N, pack_size<T>);
#pragma unroll
  for (int i = 0; i < N; i += M) {
    Pack<T, M> pack;
#pragma unroll
    for (int j = 0; j < M; ++j) pack.value[j] = from_f32<T>(from[i + j]);
    store_vector(to + i, pack);
  }
}

// y[i] = f(i, x[i]...), computed in f32. `packs`: how many packs of N elements from the start; the rest is processed
// element by element.
template <class F, class Out, class... In>
__global__ void elementwise_kernel(Previous previous, int64_t size, int64_t packs, F f, Out* y, const In*... x) {
  previous.wait();
  constexpr int N = pack_size<Out, In...>;
  for (int64_t p = global_thread(); p < packs; p += global_threads()) {
    // By value: of a reference, nvcc loads each element by itself.
    const auto apply = [&](const Pack<In, N>... in) {
      Pack<Out, N> out;
#pragma unroll
      for (int j = 0; j < N; ++j) out.value[j] = from_f32<Out>(f(p * N + j, to_f32(in.value[j])...));
      reinterpret_cast<Pack<Out, N>*>(y)[p] = out;
    };
    apply(reinterpret_cast<const Pack<In, N>*>(x)[p]...);
  }
  for (int64_t i = packs * N + global_thread(); i < size; i += global_threads()) {
    y[i] = from_f32<Out>(f(i, to_f32(x[i])...));
  }
}

// F is a struct with `__device__ float operator()(int64_t i, float x...) const`. y may be one of the inputs.
template <class F, class Out, class... In>
void elementwise(int64_t size, const F& f, Out* y, const In*... x) {
  constexpr int N = pack_size<Out, In...>;
  const bool aligned = is_aligned<Out, N>(y) && (is_aligned<In, N>(x) && ...);
  const int64_t packs = aligned ? size / N : 0;
  launch(elementwise_kernel<F, Out, In...>, blocks_for(aligned ? (size + N - 1) / N : size), block_threads, 0,
         compute_stream(), size, packs, f, y, x...);
}

// Sum over the lanes of a warp, in a fixed tree; every lane gets the result. All 32 lanes must call it together.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// As warp_sum, the maximum; fmaxf ignores a NaN.
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// How many lanes of a warp share a row of so many items: a power of two, at most all 32.
inline int lanes_for(int64_t items) {
  int lanes = 1;
  while (lanes < 32 && lanes < items) lanes *= 2;
  return lanes;
}

// Sum over the `lanes` lanes that share a row; each of them gets it. All 32 lanes of the warp must call it together.
__device__ __forceinline__ float row_sum(float value, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// The row of this thread among those that the launch processes at once, and how many they are. `lanes` divides the
// threads of a block, so 32 bits are divided.
__device__ __forceinline__ int64_t row_of_thread(int lanes) {
  const int rows = static_cast<int>(blockDim.x) / lanes;
  return int64_t{blockIdx.x} * rows + static_cast<int>(threadIdx.x) / lanes;
}
__device__ __forceinline__ int64_t rows_at_once(int lanes) {
  return int64_t{gridDim.x} * (static_cast<int>(blockDim.x) / lanes);
}

// Sum over the threads of the block, at most 1024, in a fixed tree; thread 0 gets the result, and the value in other
// threads is unspecified. All threads must call it, with a barrier between two calls.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ SharedArray<float, 32> sums;
  const int thread = static_cast<int>(threadIdx.x), warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (thread % 32 == 0) sums[thread / 32] = value;
  __syncthreads();
  if (thread >= 32) return 0;
  return warp_sum(thread < warps ? static_cast<float>(sums[thread]) : 0.0f);
}

// For a kernel that ends with what needs the results of `blocks` of its blocks: true, in all threads, in the one of
// them that comes last, which then sees what the others have written. `done`: 0 before the launch, and again after it.
// All threads of these blocks must call it, at most once, and one launch at a time may use `done`.
__device__ __forceinline__ bool is_last_block(unsigned* done, unsigned blocks) {
  __shared__ SharedArray<int, 1> last;
  __syncthreads();  // what the threads have written
  if (threadIdx.x == 0) {
    __threadfence();  // comes before their block is counted
    last[0] = atomicAdd(done, 1u) + 1 == blocks;
    if (last[0] != 0) {
      __threadfence();  // what is read from now on comes after the others were counted
      *done = 0;
    }
  }
  __syncthreads();
  return last[0] != 0;
}

// Sum over the threads of the launch, in a fixed order: true in thread 0 of the block that comes last, whose `value` it
// then is. partial: a place for each block. done: as of is_last_block(). All threads must call it.
__device__ __forceinline__ bool grid_sum(float& value, float* partial, unsigned* done) {
  value = block_sum(value);
  if (gridDim.x == 1) return threadIdx.x == 0;
  if (threadIdx.x == 0) partial[blockIdx.x] = value;
  if (!is_last_block(done, gridDim.x)) return false;
  value = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) value += partial[i];
  value = block_sum(value);
  return threadIdx.x == 0;
}

}  // namespace hs::cuda
