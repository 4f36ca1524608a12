// Forward: a warp per row. Backward: a block looks through a group of indices for one symbol, and each of its threads
// adds up one column of the rows that it finds, in order; a second kernel adds the groups. So nothing is sorted, and no
// addition is atomic.
#include "kernels/embedding/embedding.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

constexpr int warps = cuda::block_threads / 32;  // rows of a block

template <class Element>
__global__ void embedding_forward_kernel(int64_t N, int64_t V, int64_t C, Divisor length, const int32_t* indices,
                                         const Element* table, const Element* positions, Element* y) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t n = cuda::global_thread() / 32; n < N; n += int64_t{gridDim.x} * warps) {
    const int32_t v = indices[n];
    const int64_t position = length.divide(static_cast<uint32_t>(n)).remainder;
    const bool valid = v >= 0 && v < V;
    for (int64_t c = lane; c < C; c += 32) {
      const float value = valid ? cuda::to_f32(table[v * C + c]) : NAN;
      const float offset = positions != nullptr ? cuda::to_f32(positions[position * C + c]) : 0.0f;
      y[n * C + c] = cuda::from_f32<Element>(value + offset);
    }
  }
}

void forward_cuda(const EmbeddingForward& call) {
  const int64_t N = call.indices.size(), T = call.indices.shape().back();
  if (N == 0) return;
  cuda::for_float_type(call.table.dtype(), [&]<class Element>() {
    cuda::launch(embedding_forward_kernel<Element>, cuda::blocks_for(N * 32), cuda::block_threads, 0,
                 cuda::compute_stream(), N, call.table.shape()[0], call.table.shape()[1], Divisor(T),
                 call.indices.data<int32_t>(), call.table.data<Element>(),
                 call.positions.defined() ? call.positions.data<Element>() : nullptr, call.y.mutable_data<Element>());
  });
}

// Grid: (symbols, or as many at once, columns / block_threads, groups of indices). partial is (groups, V, C).
template <class In>
__global__ void symbol_sums_kernel(int64_t N, int64_t V, int64_t C, const int32_t* indices, const In* dy,
                                   float* partial) {
  constexpr int tile_size = cuda::block_threads;
  __shared__ SharedArray<int32_t, tile_size> tile;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t c = int64_t{blockIdx.y} * tile_size + thread, group = blockIdx.z, groups = gridDim.z;
  const int64_t begin = group * N / groups, end = (group + 1) * N / groups;
  for (int64_t v = blockIdx.x; v < V; v += gridDim.x) {
    float total = 0;
    for (int64_t first = begin; first < end; first += tile_size) {
      __syncthreads();  // no thread still reads the tile before
      tile[thread] = first + thread < end ? indices[first + thread] : -1;
      __syncthreads();
      for (int i = 0; i < tile_size; ++i) {
        const int32_t index = tile[i];
        if (index == v && c < C) total += cuda::to_f32(dy[(first + i) * C + c]);
      }
    }
    if (c < C) partial[(group * V + v) * C + c] = total;
  }
}

// partial: (groups, size).
template <class Out>
__global__ void add_groups_kernel(int64_t groups, int64_t size, bool accumulate, const float* partial, Out* sum) {
  for (int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) {
    float total = 0;
    for (int64_t group = 0; group < groups; ++group) total += partial[group * size + i];
    sum[i] = cuda::from_f32<Out>((accumulate ? cuda::to_f32(sum[i]) : 0.0f) + total);
  }
}

// dy is (sequences, T, C) and sum (P, C), T <= P. A block takes a position at a time.
template <class In, class Out>
__global__ void position_sums_kernel(int64_t sequences, int64_t T, int64_t P, int64_t C, bool accumulate, const In* dy,
                                     Out* sum) {
  for (int64_t t = blockIdx.x; t < P; t += gridDim.x) {
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
      float total = 0;
      for (int64_t b = 0; t < T && b < sequences; ++b) total += cuda::to_f32(dy[(b * T + t) * C + c]);
      const int64_t i = t * C + c;
      sum[i] = cuda::from_f32<Out>((accumulate ? cuda::to_f32(sum[i]) : 0.0f) + total);
    }
  }
}

// Of indices: of at least 512 each, and few enough that partial sums stay small for a large table.
int64_t groups_of(int64_t N, int64_t V) {
  return std::clamp<int64_t>(std::min(N / 512, 4096 / std::max<int64_t>(V, 1)), 1, 16);
}

int64_t backward_workspace(const EmbeddingBackward& call) {
  if (!call.dtable.defined()) return 0;
  const int64_t groups = groups_of(call.indices.size(), call.dtable.shape()[0]);
  return groups * call.dtable.size() * static_cast<int64_t>(sizeof(float));
}

template <class In, class Out>
void table_gradient(const EmbeddingBackward& call, Tensor& workspace) {
  const int64_t N = call.indices.size(), V = call.dtable.shape()[0], C = call.dtable.shape()[1];
  const int64_t groups = groups_of(N, V);
  float* partial = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(V, 4096)),
                  static_cast<unsigned>((C + cuda::block_threads - 1) / cuda::block_threads),
                  static_cast<unsigned>(groups));
  cuda::launch(symbol_sums_kernel<In>, grid, cuda::block_threads, 0, cuda::compute_stream(), N, V, C,
               call.indices.data<int32_t>(), call.dy.data<In>(), partial);
  cuda::launch(add_groups_kernel<Out>, cuda::blocks_for(V * C), cuda::block_threads, 0, cuda::compute_stream(), groups,
               V * C, call.accumulate, partial, call.dtable.mutable_data<Out>());
}

template <class In, class Out>
void position_gradient(const EmbeddingBackward& call) {
  const int64_t T = call.indices.shape().back(), P = call.dpositions.shape()[0], C = call.dpositions.shape()[1];
  cuda::launch(position_sums_kernel<In, Out>, static_cast<unsigned>(std::min<int64_t>(P, 4096)), cuda::block_threads, 0,
               cuda::compute_stream(), T ? call.indices.size() / T : 0, T, P, C, call.accumulate, call.dy.data<In>(),
               call.dpositions.mutable_data<Out>());
}

void backward_cuda(const EmbeddingBackward& call, Tensor& workspace) {
  cuda::for_float_type(call.dy.dtype(), [&]<class In>() {
    if (call.dtable.defined()) {
      cuda::for_float_type(call.dtable.dtype(), [&]<class Out>() { table_gradient<In, Out>(call, workspace); });
    }
    if (call.dpositions.defined()) {
      cuda::for_float_type(call.dpositions.dtype(), [&]<class Out>() { position_gradient<In, Out>(call); });
    }
  });
}

REGISTER_KERNEL(embedding_forward, cuda, "simple", {.run = forward_cuda, .supported = [](const EmbeddingForward& call) {
                                                      return cuda::is_float(call.table) &&
                                                             call.indices.size() <= most_indices;
                                                    }});
REGISTER_KERNEL(embedding_backward, cuda, "simple",
                {.run = backward_cuda,
                 .supported = [](const EmbeddingBackward& call) { return cuda::is_float(call.dy); },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
