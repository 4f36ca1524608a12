// Kernels for test_cuda_emulator.cpp, in CUDA C++ as the project writes it: nvcc compiles this file as well (README.md
// has the command). The ones in `namespace wrong` each contain the mistake that their name says.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/shared.cuh"

namespace {

__device__ __forceinline__ int64_t global_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Where each thread is, for a three-dimensional launch.
__global__ void write_positions(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 10000 + thread;
}

template <class T>
__global__ void axpy(int64_t n, T a, const T* __restrict__ x, T* __restrict__ y) {
  const int64_t i = global_index();
  if (i < n) y[i] = a * x[i] + y[i];
}

// y = 2 * x for 4 floats per thread.
__global__ void __launch_bounds__(256) twice_vectors(int64_t n4, const float* x, float* y) {
  const int64_t i = global_index();
  if (i >= n4) return;
  float4 v = hs::load_vector<float4>(x + 4 * i);
  v = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
  hs::store_vector(y + 4 * i, v);
}

// One sum per block of 256, as a tree in shared memory. Without `synchronize` only the first of its barriers is there.
template <bool synchronize>
__global__ void block_sum(int64_t n, const float* x, float* sums) {
  __shared__ hs::SharedArray<float, 256> partial;
  const int t = static_cast<int>(threadIdx.x);
  float mine = 0;
  for (int64_t i = global_index(); i < n; i += int64_t{gridDim.x} * blockDim.x) mine += x[i];
  partial[t] = mine;
  for (int half = 128; half > 0; half /= 2) {
    if (synchronize || half == 128) __syncthreads();
    if (t < half) partial[t] += partial[t + half];
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

__global__ void warp_sums(const float* x, float* sums) {
  __shared__ hs::SharedArray<float, 32> of_warp;
  const int t = static_cast<int>(threadIdx.x), warp = t / warpSize, lane = t % warpSize;
  const float sum = warp_sum(x[t]);
  if (lane == 0) of_warp[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    const float other = lane < static_cast<int>(blockDim.x) / warpSize ? static_cast<float>(of_warp[lane]) : 0.0f;
    const float all = warp_sum(other);
    if (lane == 0) sums[0] = all;
  }
}

__global__ void votes_and_shuffles(int* out) {
  const int t = static_cast<int>(threadIdx.x), lane = t % 32;
  const unsigned all = 0xffffffffu;
  out[t] = __shfl_sync(all, 100 + t, 3);
  out[64 + t] = __shfl_down_sync(all, t, 5);
  out[128 + t] = __shfl_sync(all, t, lane + 1, 8);
  out[192 + t] = static_cast<int>(__ballot_sync(all, lane % 3 == 0));
  out[256 + t] = __any_sync(all, lane == 7) + 2 * __all_sync(all, lane < 31);
  out[320 + t] = __syncthreads_count(t % 2) + 100 * __syncthreads_or(t == 5) + 200 * __syncthreads_and(t != 5);
  if (lane < 4) out[384 + t] = __shfl_xor_sync(0x0fu, t, 1);
}

// A histogram by integer atomics in shared memory, then in global memory.
__global__ void histogram(int n, const int* x, unsigned* counts) {
  __shared__ hs::SharedArray<unsigned, 16> own;
  const int t = static_cast<int>(threadIdx.x);
  if (t < 16) own[t] = 0;
  __syncthreads();
  for (int i = t; i < n; i += static_cast<int>(blockDim.x)) atomicAdd(&own[x[i] % 16], 1u);
  __syncthreads();
  if (t < 16) atomicAdd(&counts[t], own[t]);
}

// Reverses each warp's numbers through shared memory; __syncwarp is enough, since no other warp is involved.
template <bool synchronize>
__global__ void reverse_in_warp(const float* x, float* y) {
  auto scratch = hs::dynamic_shared<float>();
  const int t = static_cast<int>(threadIdx.x);
  scratch[t] = x[t];
  if (synchronize) __syncwarp();
  y[t] = scratch[t / 32 * 32 + 31 - t % 32];
}

// Double-buffered copy with cp.async; without `wait` the data is used before it has arrived.
template <bool wait>
__global__ void copy_async(int n, const float* x, float* y) {
  __shared__ hs::SharedArray<float, 128> stage;
  const int t = static_cast<int>(threadIdx.x);  // 32 threads, 4 floats each
  const int valid = min(max((n - 4 * t) * 4, 0), 16);
  hs::cp_async_16(stage.data() + 4 * t, valid > 0 ? x + 4 * t : x, valid);
  hs::cp_async_commit();
  if (wait) hs::cp_async_wait<0>();
  __syncthreads();
  for (int i = t; i < 128; i += 32) y[i] = stage[127 - i];
}

// For streams and graphs.
__global__ void fill(int n, float* y, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = value;
}
__global__ void add_from(int n, float* y, const float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];
}

// Exchanges the first 32 elements of two arrays whose addresses are in memory, not among the arguments.
__global__ void swap_through_table(float* const* table) {
  const float first = table[0][threadIdx.x];
  table[0][threadIdx.x] = table[1][threadIdx.x];
  table[1][threadIdx.x] = first;
}

// Each block adds up its 32 elements; the block that is done last adds up the sums of all. Without the fence it may
// read a sum before that has arrived, although it has counted the block. count is 0 before and after.
template <bool with_fence>
__global__ void sum_by_last_block(const float* x, float* sums, unsigned* count, float* total) {
  const float sum = warp_sum(x[global_index()]);
  if (threadIdx.x != 0) return;
  sums[blockIdx.x] = sum;
  if (with_fence) __threadfence();
  if (atomicAdd(count, 1u) + 1 < gridDim.x) return;
  float all = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) all += sums[i];
  *total = all;
  *count = 0;
}

namespace wrong {

// y[0] is the number of the block, or of the thread, that comes last.
__global__ void last_block_wins(int* y) { y[0] = static_cast<int>(blockIdx.x); }
__global__ void last_thread_wins(int* y) { y[0] = static_cast<int>(threadIdx.x); }

__global__ void read_unwritten(float* y) {
  __shared__ hs::SharedArray<float, 64> tile;
  const int t = static_cast<int>(threadIdx.x);
  if (t != 40) tile[t] = static_cast<float>(t);
  __syncthreads();
  y[t] = tile[63 - t];
}

__global__ void shared_out_of_bounds(float* y) {
  __shared__ hs::SharedArray<float, 64> tile;
  const int t = static_cast<int>(threadIdx.x);
  tile[t + 1] = 1.0f;  // the last thread writes tile[64]
  __syncthreads();
  y[t] = tile[t + 1];
}

__global__ void write_after_read(float* y) {
  __shared__ hs::SharedArray<float, 64> tile;
  const int t = static_cast<int>(threadIdx.x);
  tile[t] = static_cast<float>(t);
  __syncthreads();
  const float next = tile[(t + 1) % 64];
  tile[t] = next;
  y[t] = next;
}

__global__ void write_after_write(float* y) {
  __shared__ hs::SharedArray<float, 1> flag;
  flag[0] = static_cast<float>(threadIdx.x);
  __syncthreads();
  y[threadIdx.x] = flag[0];
}

__global__ void exit_before_barrier(float* y) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  y[threadIdx.x] = 1;
}

__global__ void two_barriers(float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1;
}

__global__ void missing_lane(int* y) {
  const int t = static_cast<int>(threadIdx.x);
  if (t != 9) y[t] = __shfl_xor_sync(0xffffffffu, t, 1);
}

enum class Use { write, count, copy };
__device__ unsigned threads_begun;

// Launched early. The threads from `first` on use memory before they wait for the launch in front; those from `waiting`
// on do not wait.
__global__ void begin_early(Use use, int first, int waiting, float* y) {
  __shared__ hs::SharedArray<float, 4 * 64> stage;
  const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(global_index());
  if (i >= first && use == Use::write) y[i] = 0;
  if (i >= first && use == Use::count) atomicAdd(&threads_begun, 1u);
  if (i >= first && use == Use::copy) hs::cp_async_16(stage.data() + 4 * t, y, 16);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  if (i < waiting) cudaGridDependencySynchronize();
#endif
  hs::cp_async_commit();
  hs::cp_async_wait<0>();
  if (i < waiting) y[i] = static_cast<float>(i);
}

__global__ void one_too_far(int n, float* y) {
  const int i = static_cast<int>(threadIdx.x);
  if (i <= n) y[i] = 1;
}

__global__ void read_one_too_far(int n, const float* x, float* y) {
  const int i = static_cast<int>(global_index());
  if (i < n) y[i] = x[i + 1];
}

__global__ void write_before_start(int n, float* y) {
  const int i = static_cast<int>(global_index());
  if (i < n) y[i - 1] = 1;
}

// Vectors of 4 where the last one is not full.
__global__ void straddle(int n, const float* x, float* y) {
  const int i = 4 * static_cast<int>(global_index());
  if (i < n) hs::store_vector(y + i, hs::load_vector<float4>(x + i));
}

__global__ void misaligned_vector(const float* x, float* y) {
  __shared__ hs::SharedArray<float, 64> tile;
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  hs::store_vector(y, hs::load_vector<float4>(tile.data() + 1));
}

__global__ void misaligned_cast(float* y) {
  struct alignas(16) Pack {
    float value[4];
  };
  *reinterpret_cast<Pack*>(y + 1) = Pack{};  // expected: the first thread reports it
}

}  // namespace wrong
}  // namespace
