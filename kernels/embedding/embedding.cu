// Forward: as many lanes of a warp as a row has packs of 16 bytes, up to 32, per row. Backward: a block lists where one
// symbol is in a group of indices, in order, and adds up these rows by column, as kernels/cuda/columns.cuh does; the
// last of its groups adds up the groups. So nothing is sorted, and no addition is atomic.
#include "kernels/embedding/embedding.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

template <class Element, int N>
__global__ void embedding_forward_kernel(cuda::Previous previous, int64_t rows, int64_t V, int64_t C, int lanes,
                                         Divisor length, const int32_t* indices, const Element* table,
                                         const Element* positions, Element* y) {
  previous.wait();
  const int64_t begin = static_cast<int>(threadIdx.x) % lanes * N, step = lanes * N;
  for (int64_t n = cuda::row_of_thread(lanes); n < rows; n += cuda::rows_at_once(lanes)) {
    const int32_t v = indices[n];
    const int64_t position = length.divide(static_cast<uint32_t>(n)).remainder;
    const bool valid = v >= 0 && v < V;
    for (int64_t c = begin; c < C; c += step) {
      cuda::Floats<N> value, offset = {};
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] = NAN;
      if (valid) value = cuda::load<N>(table + v * C + c);
      if (positions != nullptr) offset = cuda::load<N>(positions + position * C + c);
      cuda::add(offset, value);
      cuda::store<Element>(value, y + n * C + c);
    }
  }
}

void forward_cuda(const EmbeddingForward& call) {
  const int64_t rows = call.indices.size(), V = call.table.shape()[0], C = call.table.shape()[1];
  if (rows == 0) return;
  const Divisor length(call.indices.shape().back());
  cuda::for_float_type(call.table.dtype(), [&]<class Element>() {
    const Element* table = call.table.data<Element>();
    const Element* positions = call.positions.defined() ? call.positions.data<Element>() : nullptr;
    Element* y = call.y.mutable_data<Element>();
    const auto run = [&]<int N>() {
      const int lanes = cuda::lanes_for(C / N);
      cuda::launch(embedding_forward_kernel<Element, N>, cuda::blocks_for(rows * lanes), cuda::block_threads, 0,
                   cuda::compute_stream(), rows, V, C, lanes, length, call.indices.data<int32_t>(), table, positions,
                   y);
    };
    cuda::for_pack_size<Element>(C, run, table, positions, y);
  });
}

constexpr int warps = cuda::block_threads / 32;
constexpr int64_t max_grids = 2048;  // of groups: symbols, times blocks side by side

__device__ unsigned symbol_groups_done[max_grids];  // 0 between launches, which run one at a time

// The threads whose `is_there` is true, in order, in `found`; their number. All threads of the block call it.
__device__ __forceinline__ int list_threads(bool is_there, SharedPointer<int> found) {
  __shared__ SharedArray<int, warps> counts;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const unsigned those = __ballot_sync(0xffffffffu, is_there);
  __syncthreads();  // the list of a call before this one may still be read
  if (lane == 0) counts[warp] = __popc(those);
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < warps; ++w) {
    const int count = counts[w];
    before += w < warp ? count : 0;
    all += count;
  }
  if (is_there) found[before + __popc(those & ((1u << lane) - 1))] = thread;
  __syncthreads();
  return all;
}

// Grid: that of the groups, times the symbols, or as many at once. partial is (V, groups, C).
template <class In, class Out, int N>
__global__ void symbol_sums_kernel(cuda::Previous previous, int64_t C, cuda::ColumnGroups groups, int64_t V,
                                   bool accumulate, const int32_t* indices, const In* dy, float* partial, Out* sum) {
  previous.wait();
  __shared__ SharedArray<int, cuda::block_threads> found;
  const cuda::ColumnPart<N> part(C, groups);
  for (int64_t v = blockIdx.z; v < V; v += gridDim.z) {
    cuda::Floats<N> own[1] = {};
    for (int64_t first = part.first; first < part.end; first += cuda::block_threads) {
      const int64_t i = first + part.thread;
      const int count = list_threads(i < part.end && indices[i] == v, found.data());
      const auto load = [&](int64_t place) {
        const int row = found[static_cast<int>(place)];
        return cuda::load<N>(dy + (first + row) * C + part.c);
      };
      part.for_rows(0, count, load, [&](int64_t, const cuda::Floats<N>& value) { cuda::add(value, own[0]); });
    }
    const auto totals = part.totals(own);
    unsigned* done = &symbol_groups_done[gridDim.y > 1 ? v * gridDim.x + blockIdx.x : 0];
    float* const own_partial = gridDim.y > 1 ? partial + v * gridDim.y * C : nullptr;
    const bool is_last = part.template join<1>(totals, own_partial, done);
    if (is_last) part.write(totals, 0, accumulate, sum + v * C);
  }
}

// dy is (sequences, T, C) and sum (P, C), T <= P. A block takes a position at a time.
template <class In, class Out, int N>
__global__ void position_sums_kernel(cuda::Previous previous, int64_t C, cuda::ColumnGroups sequences, int64_t T,
                                     int64_t P, bool accumulate, const In* dy, Out* sum) {
  previous.wait();
  const cuda::ColumnPart<N> part(C, sequences);
  for (int64_t t = blockIdx.z; t < P; t += gridDim.z) {
    cuda::Floats<N> own[1] = {};
    part.for_rows(
        0, t < T ? part.rows : 0, [&](int64_t b) { return cuda::load<N>(dy + (b * T + t) * C + part.c); },
        [&](int64_t, const cuda::Floats<N>& value) { cuda::add(value, own[0]); });
    part.write(part.totals(own), 0, accumulate, sum + t * C);
  }
}

// Of indices: of at least 512 each, and few enough that partial sums stay small for a large table. grids: symbols,
// times blocks side by side.
int64_t groups_of(int64_t indices, int64_t grids) {
  return std::clamp<int64_t>(std::min(indices / 512, 2 * max_grids / std::max<int64_t>(grids, 1)), 1, 16);
}

int64_t backward_workspace(const EmbeddingBackward& call) {
  if (!call.dtable.defined()) return 0;
  const int64_t groups = groups_of(call.indices.size(), call.dtable.shape()[0]);  // if one block has all columns
  return groups > 1 ? groups * call.dtable.size() * static_cast<int64_t>(sizeof(float)) : 0;
}

int64_t at_once(int64_t items) { return std::min<int64_t>(items, 4096); }

template <class In, class Out>
void table_gradient(const EmbeddingBackward& call, Tensor& workspace) {
  const int64_t rows = call.indices.size(), V = call.dtable.shape()[0], C = call.dtable.shape()[1];
  const In* dy = call.dy.data<In>();
  float* partial = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  const auto run = [&]<int N>() {
    cuda::ColumnGroups groups(rows, C, N);
    groups.divide(groups_of(rows, V * groups.blocks));
    cuda::launch(symbol_sums_kernel<In, Out, N>, groups.grid(at_once(V)), cuda::block_threads, 0,
                 cuda::compute_stream(), C, groups, V, call.accumulate, call.indices.data<int32_t>(), dy, partial,
                 call.dtable.mutable_data<Out>());
  };
  cuda::for_pack_size<In>(C, run, dy, partial);
}

template <class In, class Out>
void position_gradient(const EmbeddingBackward& call) {
  const int64_t T = call.indices.shape().back(), P = call.dpositions.shape()[0], C = call.dpositions.shape()[1];
  const In* dy = call.dy.data<In>();
  const auto run = [&]<int N>() {
    cuda::ColumnGroups sequences(T ? call.indices.size() / T : 0, C, N);
    sequences.divide(1);
    cuda::launch(position_sums_kernel<In, Out, N>, sequences.grid(at_once(P)), cuda::block_threads, 0,
                 cuda::compute_stream(), C, sequences, T, P, call.accumulate, dy, call.dpositions.mutable_data<Out>());
  };
  cuda::for_pack_size<In>(C, run, dy);
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
                                                             call.indices.size() <= max_indices;
                                                    }});
REGISTER_KERNEL(embedding_backward, cuda, "simple",
                {.run = backward_cuda,
                 .supported = [](const EmbeddingBackward& call) { return cuda::is_float(call.dy); },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
