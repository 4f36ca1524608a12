// What the emulator counts (source/counters.cpp), on small kernels whose counts can be worked out by hand: each row
// says how. Compiled as kernels are whose accesses to global memory count, so this file is a program of its own.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <algorithm>
#include <functional>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/shared.cuh"
#include "test_support.h"

namespace {

using namespace emu;
using hs::emulator::Counts;

__global__ void copy(const float* x, float* y, int stride, int shift) {
  const int t = static_cast<int>(threadIdx.x);
  y[t] = x[t * stride + shift];
}
__global__ void copy_some(const float* x, float* y, int lanes) {
  const int t = static_cast<int>(threadIdx.x);
  if (t % 32 < lanes) y[t] = x[t];
}
template <class T>
__global__ void copy_as(const float* x, float* y) {
  reinterpret_cast<T*>(y)[threadIdx.x] = reinterpret_cast<const T*>(x)[threadIdx.x];
}
__global__ void add_to(float* y) { y[threadIdx.x] += 1; }
__global__ void copy_vectors(const float* x, float* y, int stride) {
  const int t = static_cast<int>(threadIdx.x);
  hs::store_vector(y + 4 * t, hs::load_vector<float4>(x + 4 * stride * t));
}
__global__ void copy_vectors_in_turns(const float* x, float* y, int n) {
  const int step = 4 * static_cast<int>(blockDim.x);
  for (int i = 4 * static_cast<int>(threadIdx.x); i < n; i += step)
    hs::store_vector(y + i, hs::load_vector<float4>(x + i));
}
__global__ void grid_stride(const float* x, float* y, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) y[i] = x[i];
}
// Lanes leave the loop one after the other: lane t makes t + 1 turns.
__global__ void triangle(const float* x, float* y) {
  const int t = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = 0; i <= t; ++i) sum += x[32 * i + t];
  y[t] = sum;
}
// Lanes skip different turns, but come together after each.
__global__ void in_turns(const float* x, float* y) {
  const int t = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 4; ++i) {
    if (t % 2 == i % 2) y[32 * i + t] = x[32 * i + t];
    __syncwarp();
  }
}
// Two ways, and one of them again in two.
__global__ void nested(const float* x, float* y) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < 16) {
    y[t] = x[t];
    if (t < 8) y[t + 64] = x[t];
  } else {
    y[t] = x[t + 32];
  }
}
// The lanes leave an inner loop one after the other, and come together in each turn of the outer one.
__global__ void loops(const float* x, float* y) {
  const int t = static_cast<int>(threadIdx.x);
  float value = x[t];
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < t % 4; ++j) value = value * value + 1;
    value *= 2;
  }
  y[t] = value;
}
__global__ void leave(const float* x, float* y) {
  const int t = static_cast<int>(threadIdx.x);
  if (t >= 20) return;
  y[t] = x[t];
  if (t < 10) y[t + 32] = x[t];
}
// A table in shared memory, read at `stride`; written without a conflict.
__global__ void shared_stride(float* y, int stride) {
  __shared__ hs::SharedArray<float, 1024> tile;
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < 1024; i += 32) tile[i] = 1;
  __syncthreads();
  y[t] = tile[t * stride];
}
template <class Vector>
__global__ void shared_vectors(float* y, int stride) {
  __shared__ hs::SharedArray<float, 1024> tile;
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < 1024; i += 32) tile[i] = 1;
  __syncthreads();
  y[t] = hs::load_vector<Vector>(tile.data() + t * stride).x;
}
__global__ void shared_bytes(float* y) {
  __shared__ hs::SharedArray<unsigned char, 32> tile;
  const int t = static_cast<int>(threadIdx.x);
  tile[t] = 1;
  __syncthreads();
  const unsigned char byte = tile[31 - t];
  y[t] = byte;
}
template <int row>  // 32: a column lies in one bank. 33: padded
__global__ void transpose(const float* x, float* y) {
  __shared__ hs::SharedArray<float, row * 32> tile;
  const int column = static_cast<int>(threadIdx.x), first = static_cast<int>(threadIdx.y);
  for (int i = first; i < 32; i += 8) tile[i * row + column] = x[i * 32 + column];
  __syncthreads();
  for (int i = first; i < 32; i += 8) y[i * 32 + column] = tile[column * row + i];
}
__global__ void copy_async(const float* x, float* y) {
  __shared__ hs::SharedArray<float, 128> stage;
  const int t = static_cast<int>(threadIdx.x);
  hs::cp_async_16(stage.data() + 4 * t, x + 4 * t);
  hs::cp_async_commit();
  hs::cp_async_wait<0>();
  hs::store_vector(y + 4 * t, hs::load_vector<float4>(stage.data() + 4 * t));
}
template <int row>  // of halves; 16: rows 0, 4, 8 and 12 begin in one bank. 24: padded
__global__ void load_matrix(float* y) {
  __shared__ hs::SharedArray<__half, 16 * row> tile;
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < 16 * row; i += 32) tile[i] = __float2half(1);
  __syncthreads();
  uint32_t r[4];
  hs::ldmatrix_x4(r, tile.data() + t % 16 * row + t / 16 * 8);
  y[t] = static_cast<float>(r[0]);
}

struct Row {
  const char* name;
  std::function<cudaError_t(cudaStream_t, float*, float*)> run;
  Counts::Global loads, stores;  // requests, sectors, bytes used
  Counts::Shared shared;         // requests, conflicts
  uint64_t divergent = 0;
};

template <class... P, class... A>
auto block(void (*kernel)(P...), dim3 threads, A... rest) {  // of (x, y, rest...)
  return [=](cudaStream_t stream, float* x, float* y) { return launch(kernel, 1, threads, 0, stream, x, y, rest...); };
}
template <class... P, class... A>
auto writer(void (*kernel)(P...), A... rest) {  // one warp; of (y, rest...)
  return [=](cudaStream_t stream, float*, float* y) { return launch(kernel, 1, 32, 0, stream, y, rest...); };
}

TEST_CASE("counts: closed forms") {
  const Row rows[] = {
      {"stride 1: 32 * 4 bytes are 4 sectors", block(copy, 32, 1, 0), {1, 4, 128}, {1, 4, 128}, {}},
      {"stride 2: 256 bytes", block(copy, 32, 2, 0), {1, 8, 128}, {1, 4, 128}, {}},
      {"stride 32: a sector for each lane", block(copy, 32, 32, 0), {1, 32, 128}, {1, 4, 128}, {}},
      {"shifted by one: 4 bytes of a fifth sector", block(copy, 32, 1, 1), {1, 5, 128}, {1, 4, 128}, {}},
      {"shifted by 8: aligned", block(copy, 32, 1, 8), {1, 4, 128}, {1, 4, 128}, {}},
      {"backwards: as forwards", block(copy, 32, -1, 31), {1, 4, 128}, {1, 4, 128}, {}},
      {"broadcast: one sector, 4 bytes of it", block(copy, 32, 0, 0), {1, 1, 4}, {1, 4, 128}, {}},
      {"4 warps", block(copy, 128, 1, 0), {4, 16, 512}, {4, 16, 512}, {}},
      {"half a warp", block(copy_some, 64, 16), {2, 4, 128}, {2, 4, 128}, {}, 2},
      {"one lane", block(copy_some, 32, 1), {1, 1, 4}, {1, 1, 4}, {}, 1},
      {"bytes: one sector", block(copy_as<unsigned char>, 32), {1, 1, 32}, {1, 1, 32}, {}},
      {"doubles: 8 sectors", block(copy_as<double>, 32), {1, 8, 256}, {1, 8, 256}, {}},
      {"y += 1: a load and a store", writer(add_to), {1, 4, 128}, {1, 4, 128}, {}},
      {"float4: 512 bytes in one request", block(copy_vectors, 32, 1), {1, 16, 512}, {1, 16, 512}, {}},
      {"every other float4: half of each sector", block(copy_vectors, 32, 2), {1, 32, 512}, {1, 16, 512}, {}},
      {"32 KiB by float4: no lane parts where a page ends",
       block(copy_vectors_in_turns, 256, 8192),
       {64, 1024, 32768},
       {64, 1024, 32768},
       {}},
      {"grid stride: of 100 floats, the last 16 bytes alone",
       block(grid_stride, 32, 100),
       {4, 13, 400},
       {4, 13, 400},
       {},
       1},
      // Turn i has lanes i to 31: 4 sectors for i < 8, then 3, 2, 1; all of the 528 floats are used.
      {"triangle: the turns of a lane are told apart", block(triangle, 32), {32, 80, 2112}, {1, 4, 128}, {}, 31},
      {"odd and even lanes in turns: 4 requests and not 2", block(in_turns, 32), {4, 16, 256}, {4, 16, 256}, {}, 4},
      {"branches, one in another", block(nested, 32), {3, 5, 160}, {3, 5, 160}, {}, 2},
      // Of the inner loop's 0 to 3 turns: at its beginning a quarter of the lanes parts, and after the first two turns.
      {"branches, loops", block(loops, 32), {1, 4, 128}, {1, 4, 128}, {}, 3 * 3},
      {"branches, lanes that end early", block(leave, 32), {2, 5, 120}, {2, 5, 120}, {}, 2},
      {"shared, stride 1", writer(shared_stride, 1), {}, {1, 4, 128}, {33, 0}},
      {"shared, stride 2: two lanes to a bank", writer(shared_stride, 2), {}, {1, 4, 128}, {33, 1}},
      {"shared, stride 31: 31 and 32 have no factor in common", writer(shared_stride, 31), {}, {1, 4, 128}, {33, 0}},
      {"shared, stride 24: gcd(24, 32) = 8", writer(shared_stride, 24), {}, {1, 4, 128}, {33, 7}},
      {"shared, broadcast", writer(shared_stride, 0), {}, {1, 4, 128}, {33, 0}},
      {"shared, float4: quarters without conflicts", writer(shared_vectors<float4>, 4), {}, {1, 4, 128}, {33, 0}},
      {"shared, every other float4: quarters in two", writer(shared_vectors<float4>, 8), {}, {1, 4, 128}, {33, 4}},
      {"shared, float2", writer(shared_vectors<float2>, 2), {}, {1, 4, 128}, {33, 0}},
      {"shared, every other float2: halves in two", writer(shared_vectors<float2>, 4), {}, {1, 4, 128}, {33, 2}},
      {"shared, bytes: four lanes share a word", writer(shared_bytes), {}, {1, 4, 128}, {2, 0}},
      {"transpose: a column is 32 wavefronts",
       block(transpose<32>, dim3(32, 8)),
       {32, 128, 4096},
       {32, 128, 4096},
       {64, 32 * 31}},
      {"transpose, padded", block(transpose<33>, dim3(32, 8)), {32, 128, 4096}, {32, 128, 4096}, {64, 0}},
      {"cp.async: a load and a store to shared memory", block(copy_async, 32), {1, 16, 512}, {1, 16, 512}, {2, 0}},
      // Halves are written as 16 words by 32 lanes. Rows of 8 words: of 8 rows two each begin in one of four places.
      {"ldmatrix: each 8x8 tile in two wavefronts", writer(load_matrix<16>), {}, {1, 4, 128}, {8 + 1, 4}},
      {"ldmatrix, padded", writer(load_matrix<24>), {}, {1, 4, 128}, {12 + 1, 0}},
  };
  for (const hs::emulator::Order order :
       {hs::emulator::Order::forward, hs::emulator::Order::reverse, hs::emulator::Order::random}) {
    Fresh fresh;
    options().threads = order;
    options().count = true;
    Stream stream;
    Array<float> x(std::vector<float>(8192, 1.0f)), y(8192);
    for (const Row& row : rows) {
      INFO(std::string(row.name));
      REQUIRE(row.run(stream, x.data, y.data) == cudaSuccess);
      uint64_t totals[5] = {};
      CHECK(hs::emulator::hs_emulator_memory_counts(totals));
      const uint64_t expected[] = {row.loads.requests + row.stores.requests, row.loads.sectors + row.stores.sectors,
                                   row.loads.bytes_used + row.stores.bytes_used, row.shared.conflicts, row.divergent};
      CHECK(std::ranges::equal(totals, expected));
      const std::vector<Counts> all = hs::emulator::take_counts();
      REQUIRE(all.size() == 1);
      const auto check_global = [](const Counts::Global& got, const Counts::Global& expected) {
        CHECK(got.requests == expected.requests);
        CHECK(got.sectors == expected.sectors);
        CHECK(got.bytes_used == expected.bytes_used);
      };
      check_global(all[0].loads, row.loads);
      check_global(all[0].stores, row.stores);
      CHECK(all[0].shared.requests == row.shared.requests);
      CHECK(all[0].shared.conflicts == row.shared.conflicts);
      CHECK(all[0].divergent == row.divergent);
    }
    CHECK(no_reports());
  }
}

TEST_CASE("counts: launches of one kernel are added, allocations start as on a device, and off is off") {
  Fresh fresh;
  Stream stream;
  Array<float> x(std::vector<float>(37, 1.0f)), y(37);  // the emulator puts them at a multiple of 16, not of 32
  CHECK(launch(copy, 1, 32, 0, stream, x.data, y.data, 1, 0) == cudaSuccess);
  CHECK(hs::emulator::take_counts().empty());
  options().count = true;
  options().every_order = true;  // runs a launch three times, and counts it once
  for (int i = 0; i < 3; ++i) CHECK(launch(copy, 1, 32, 0, stream, x.data, y.data, 1, 0) == cudaSuccess);
  CHECK(launch(transpose<33>, 1, dim3(32, 8), 1000, stream, Array<float>(1024).data, Array<float>(1024).data) == 0);
  const std::vector<Counts> all = hs::emulator::take_counts();
  REQUIRE(all.size() == 2);
  CHECK(all[0].kernel.find("copy(") == 0);
  CHECK(all[0].launches == 3);
  CHECK(all[0].loads.sectors == 12);
  CHECK(all[1].threads == 256);
  CHECK(all[1].shared_bytes == 33 * 32 * 4 + 1000);
}

TEST_CASE("counts: the request that costs most") {
  Fresh fresh;
  options().count = true;
  Stream stream;
  Array<float> x(std::vector<float>(1024, 1.0f)), y(1024);
  for (int stride : {1, 32, 2}) CHECK(launch(copy, 1, 32, 0, stream, x.data, y.data, stride, 0) == cudaSuccess);
  CHECK(launch(transpose<32>, 1, dim3(32, 8), 0, stream, x.data, y.data) == cudaSuccess);
  const std::vector<Counts> all = hs::emulator::take_counts();
  REQUIRE(all.size() == 2);
  const auto check = [](const Counts::Costliest& request, uint64_t cost) {  // a column of a matrix of 32 floats
    CHECK(request.cost == cost);
    CHECK(!request.is_store);
    REQUIRE(request.lanes.size() == 32);
    for (size_t i = 0; i < 32; ++i) {
      CHECK(request.lanes[i].lane == static_cast<int>(i));
      CHECK(request.lanes[i].address == request.lanes[0].address + 128 * i);
      CHECK(request.lanes[i].bytes == 4);
    }
  };
  check(all[0].costliest_global, 32);
  CHECK(all[0].costliest_shared.lanes.empty());
  check(all[1].costliest_shared, 31);
}

TEST_CASE("counts: requests by instruction, of some blocks") {
  Fresh fresh;
  Stream stream;
  Array<float> x(std::vector<float>(128, 1.0f)), y(128);
  options().count = true;
  options().sample = 3;
  CHECK(launch(copy_async, 8, 32, 0, stream, x.data, y.data) == cudaSuccess);
  const std::vector<Counts> all = hs::emulator::take_counts();
  REQUIRE(all.size() == 1);
  CHECK(all[0].blocks == 4);  // 0, 2, 4 and 6
  std::array<uint64_t, 22> expected = {};
  expected[5 + 4] = expected[10 + 4] = 4;  // stores of 16 bytes, and loads of shared memory
  expected[20] = 4;                        // cp.async
  CHECK(all[0].instructions == expected);
}

// Blocks of a multiprocessor: what cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0's cuda_occupancy.h says.
TEST_CASE("occupancy, by registers, shared memory, warps and blocks") {
  const struct {
    int threads, registers;
    size_t shared;
    int sm_80, sm_90;
  } rows[] = {
      {256, 32, 0, 8, 8},       {256, 33, 0, 6, 6},         {1024, 64, 0, 1, 1},         {1024, 65, 0, 0, 0},
      {32, 16, 0, 32, 32},      {96, 40, 0, 16, 16},        {160, 96, 0, 4, 4},          {256, 255, 0, 1, 1},
      {256, 0, 48 << 10, 3, 4}, {128, 32, 16 << 10, 9, 13}, {128, 32, 163 << 10, 1, 1},  {128, 32, 10000, 15, 16},
      {64, 255, 1, 4, 4},       {33, 24, 4096, 32, 32},     {128, 128, 227 << 10, 0, 1},
  };
  for (const auto& row : rows) {
    INFO(row.threads, " threads, ", row.registers, " registers, ", row.shared, " bytes");
    CHECK(hs::emulator::resident_blocks(hs::emulator::sm_80, row.threads, row.registers, row.shared) == row.sm_80);
    CHECK(hs::emulator::resident_blocks(hs::emulator::sm_90, row.threads, row.registers, row.shared) == row.sm_90);
  }
  CHECK(hs::emulator::occupancy(hs::emulator::sm_90, 256, 33, 0) == 0.75);
}

}  // namespace
