// Rung 4 of the gemm ladder. It adds overlap to wmma.cu, and removes needless work around the products.
// - cp.async copies 16 bytes at a time from global to shared memory, without registers: two steps of K are in flight
//   while a third is computed, and one barrier per step is enough.
// - Tiles keep the order that the operands have in global memory, and ldmatrix transposes them where necessary: each of
//   the four transpositions is a separate kernel, and costs nothing.
// - The 16-byte chunks of a row are permuted ("swizzled"): neither copies nor ldmatrix have bank conflicts.
// - mma.sync has a known order of elements (kernels/cuda/mma.cuh), so C goes from registers to global memory.
// Next: cublaslt.cu.
#include <cuda_runtime.h>

#include "kernels/gemm/gemm.cuh"

namespace hs {
namespace {

using cuda::GemmProblem;

// A block computes a tile x tile piece of C with two rows of warps, each warp tile/2 x 32 of it.
constexpr int tile_k = 32, piece_n = 32, stages = 3;
constexpr int threads_for(int tile) { return 2 * (tile / piece_n) * 32; }
constexpr int chunk = 8;  // values in 16 bytes

// The tile of op(A) or op(B) that one step of K needs: element (i, k) with i < tile a row of op(A), or a column of
// op(B). k_inner: k is the contiguous index, in global memory and here.
template <class T, int tile, bool k_inner>
struct OperandTile {
  static constexpr int size = tile * tile_k;
  static constexpr int chunks = (k_inner ? tile_k : tile) / chunk;  // in a row

  // The position of a chunk in a row. ldmatrix reads one column of 8 rows at once, 16 bytes each, and the banks are 128
  // bytes wide: a row of 4 chunks fills half of them, so every second row shifts the column, otherwise every row does.
  static constexpr int place(int row, int column) {
    return (row * chunks + (column ^ (k_inner ? row / 2 % 4 : row % 8))) * chunk;
  }

  // Starts copying from x, the first element of the tile, with zeros beyond rows_left and columns_left. A row is one i
  // if k_inner, otherwise one k. `aligned`: rows start at multiples of 16 bytes; others are read element by element.
  static __device__ __forceinline__ void copy(SharedPointer<T> to, const T* x, int64_t row_stride, int64_t rows_left,
                                              int64_t columns_left, bool aligned) {
#pragma unroll
    for (int c = threadIdx.x; c < size / chunk; c += threads_for(tile)) {
      const int row = c / chunks, column = c % chunks;
      const int64_t left = row < rows_left ? columns_left - column * chunk : 0;
      const T* from = x + row * row_stride + column * chunk;
      if (aligned) {  // then rows are whole chunks, too
        cp_async_16(to + place(row, column), left > 0 ? from : x, left > 0 ? 16 : 0);
      } else {
        cuda::Pack<T, chunk> numbers = {};
#pragma unroll
        for (int i = 0; i < chunk; ++i) {
          if (i < left) numbers.value[i] = from[i];
        }
        store_vector(to + place(row, column), numbers);
      }
    }
  }

  // Loads four 8 x 8 pieces for the warp. (i, k) is the corner of the piece for which this lane gives a row's address.
  static __device__ __forceinline__ void load(uint32_t (&registers)[4], SharedPointer<T> from, int i, int k) {
    const int row = threadIdx.x % 8;
    if constexpr (k_inner) {
      ldmatrix_x4(registers, from + place(i + row, k / chunk));
    } else {
      ldmatrix_x4_trans(registers, from + place(k + row, i / chunk));
    }
  }
};

template <class Tile>
constexpr bool no_bank_twice() {
  for (int column = 0; column < Tile::chunks; ++column) {
    unsigned banks = 0;  // one bit per 16 of the 128 bytes
    for (int row = 0; row < 8; ++row) banks |= 1u << (Tile::place(row, column) / chunk % 8);
    if (banks != 255) return false;
  }
  return true;
}
static_assert(no_bank_twice<OperandTile<Half, 64, true>>() && no_bank_twice<OperandTile<Half, 64, false>>() &&
              no_bank_twice<OperandTile<Half, 128, true>>() && no_bank_twice<OperandTile<Half, 128, false>>());

// Stores two neighbours in a row of C; `pairs`: in one access.
template <class In, class Out>
__device__ __forceinline__ void store_two(const GemmProblem<In, Out>& g, int64_t row, int64_t column, float first,
                                          float second, bool pairs) {
  if (row >= g.M || column >= g.N) return;
  Out* c = g.c + row * g.N + column;
  cuda::Pack<Out, 2> values = {cuda::gemm_element(g, row, column, first), {}};
  const bool two = column + 1 < g.N;
  if (two) values.value[1] = cuda::gemm_element(g, row, column + 1, second);
  if (pairs) {
    store_vector(c, values);
  } else {
    c[0] = values.value[0];
    if (two) c[1] = values.value[1];
  }
}

struct Alignment {
  bool a, b;   // rows start at multiples of 16 bytes
  bool pairs;  // rows of C start at multiples of two elements
};

template <class In, class Out, int tile, bool a_k_inner, bool b_k_inner>
__global__ void __launch_bounds__(threads_for(tile))
    gemm_mma_kernel(cuda::Previous previous, GemmProblem<In, Out> g, Alignment aligned) {
  previous.wait();
  using ATile = OperandTile<In, tile, a_k_inner>;
  using BTile = OperandTile<In, tile, b_k_inner>;
  __shared__ SharedArray<In, stages * ATile::size> a_tiles;
  __shared__ SharedArray<In, stages * BTile::size> b_tiles;
  const auto [row, column] = cuda::tile_origin(g.N, tile, tile);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int piece_row = warp / (tile / piece_n) * (tile / 2), piece_column = warp % (tile / piece_n) * piece_n;
  constexpr int mmas_m = tile / 2 / 16, mmas_n = piece_n / 8;

  // Copies the tiles of the step that starts at k, as one group; an empty group beyond the end.
  const auto start_copies = [&](int64_t k, int stage) {
    if (k < g.K) {
      const int64_t rows = g.M - row, columns = g.N - column, depth = g.K - k;
      ATile::copy(a_tiles.data() + stage * ATile::size, g.a + row * g.a_row + k * g.a_k, a_k_inner ? g.a_row : g.a_k,
                  a_k_inner ? rows : depth, a_k_inner ? depth : rows, aligned.a);
      BTile::copy(b_tiles.data() + stage * BTile::size, g.b + column * g.b_column + k * g.b_k,
                  b_k_inner ? g.b_column : g.b_k, b_k_inner ? columns : depth, b_k_inner ? depth : columns, aligned.b);
    }
    cp_async_commit();
  };

  float sum[mmas_m][mmas_n][4] = {};
  for (int stage = 0; stage < stages - 1; ++stage) start_copies(stage * tile_k, stage);
  int stage = 0;
  for (int64_t k = 0; k < g.K; k += tile_k) {
    cp_async_wait<stages - 2>();  // this thread's share of this step has arrived,
    __syncthreads();              // and those of the others; no thread still reads the stage that is filled next
    start_copies(k + (stages - 1) * tile_k, (stage + stages - 1) % stages);
    const auto a_tile = a_tiles.data() + stage * ATile::size;
    const auto b_tile = b_tiles.data() + stage * BTile::size;
#pragma unroll
    for (int inner = 0; inner < tile_k; inner += 16) {
      // Pieces of A in the order (rows, k): (0, 0), (8, 0), (0, 8), (8, 8). Of B, (k, columns): the same.
      uint32_t a[mmas_m][4], b[mmas_n / 2][4];
      const int one = lane / 8 % 2 * 8, other = lane / 16 * 8;
#pragma unroll
      for (int i = 0; i < mmas_m; ++i) ATile::load(a[i], a_tile, piece_row + i * 16 + one, inner + other);
#pragma unroll
      for (int j = 0; j < mmas_n / 2; ++j) BTile::load(b[j], b_tile, piece_column + j * 16 + other, inner + one);
#pragma unroll
      for (int i = 0; i < mmas_m; ++i) {
#pragma unroll
        for (int j = 0; j < mmas_n; ++j) {
          const uint32_t b_of_8[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
          mma_m16n8k16<cuda::Native<In>>(sum[i][j], a[i], b_of_8, sum[i][j]);
        }
      }
    }
    stage = (stage + 1) % stages;
  }

#pragma unroll
  for (int i = 0; i < mmas_m; ++i) {
#pragma unroll
    for (int j = 0; j < mmas_n; ++j) {
      const int64_t m = row + piece_row + i * 16 + lane / 4, n = column + piece_column + j * 8 + lane % 4 * 2;
      store_two(g, m, n, sum[i][j][0], sum[i][j][1], aligned.pairs);
      store_two(g, m + 8, n, sum[i][j][2], sum[i][j][3], aligned.pairs);
    }
  }
}

template <int tile, class In, class Out>
void launch_tiles(const GemmProblem<In, Out>& g, const GemmOptions& options) {
  const Alignment aligned = {.a = cuda::is_aligned<In, chunk>(g.a) && (options.transpose_a ? g.M : g.K) % chunk == 0,
                             .b = cuda::is_aligned<In, chunk>(g.b) && (options.transpose_b ? g.K : g.N) % chunk == 0,
                             .pairs = cuda::is_aligned<Out, 2>(g.c) && g.N % 2 == 0};
  const auto run = [&](auto kernel) {
    cuda::launch(kernel, cuda::gemm_blocks(g.M, g.N, tile, tile), threads_for(tile), 0, cuda::compute_stream(), g,
                 aligned);
  };
  if (options.transpose_a) {
    run(options.transpose_b ? gemm_mma_kernel<In, Out, tile, false, true>
                            : gemm_mma_kernel<In, Out, tile, false, false>);
  } else {
    run(options.transpose_b ? gemm_mma_kernel<In, Out, tile, true, true> : gemm_mma_kernel<In, Out, tile, true, false>);
  }
}

void gemm_mma(const Gemm& call) {
  cuda::for_16_bit_gemm_types(call, [&]<class In, class Out>() {
    const auto g = cuda::gemm_problem<In, Out>(call);
    // Large tiles need the fewest copies, small ones keep more multiprocessors busy; an H100 has 132. Decided
    // only by the shape, so that results are the same on every device.
    constexpr unsigned enough_blocks = 128;
    if (g.M > 64 && g.N > 64 && cuda::gemm_blocks(g.M, g.N, 128, 128) >= enough_blocks) {
      launch_tiles<128>(g, call.options);
    } else {
      launch_tiles<64>(g, call.options);
    }
  });
}

bool gemm_mma_supported(const Gemm& call) {
  return cuda::gemm_types_supported(call) && call.a.dtype() != DType::f32 && call.options.epilogue == Epilogue::none;
}

REGISTER_KERNEL(gemm, cuda, "mma", {.run = gemm_mma, .supported = gemm_mma_supported, .rank = 30});

}  // namespace
}  // namespace hs
