// The CUDA emulator's own tests: what it computes, and that each of its detectors finds its mistake and nothing else.
// The kernels are in cuda_emulator/kernels.cuh. Streams and graphs are
// tested in cuda_emulator/test_streams.h, cuBLASLt in cuda_emulator/test_cublaslt.h, NCCL in cuda_emulator/test_nccl.h.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "cuda_emulator/kernels.cuh"
#include "cuda_emulator/test_cublaslt.h"
#include "cuda_emulator/test_memory_order.h"
#include "cuda_emulator/test_nccl.h"
#include "cuda_emulator/test_streams.h"
#include "cuda_emulator/test_support.h"
#include "tests/support/sanitized.h"

namespace {

using namespace emu;
using hs::emulator::Order;

constexpr Order orders[] = {Order::forward, Order::reverse, Order::random};
std::vector<float> iota(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST_CASE("kernels: indices and vectors, in every order of threads and blocks") {
  for (Order order : orders) {
    Fresh fresh;
    options().threads = order;
    Stream stream;
    Array<int> positions(2 * 3 * 2 * 4 * 5 * 2);
    CHECK(launch(write_positions, dim3(2, 3, 2), dim3(4, 5, 2), 0, stream, positions.data) == cudaSuccess);
    const std::vector<int> got = positions.host();
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == static_cast<int>(i / 40 * 10000 + i % 40));

    Array<float> x(iota(1000)), y(iota(1000));
    CHECK(launch(axpy<float>, 4, 256, 0, stream, 1000, 2.0f, x.data, y.data) == cudaSuccess);
    CHECK(launch(twice_vectors, 1, 256, 0, stream, 250, y.data, x.data) == cudaSuccess);
    const std::vector<float> six = x.host();
    for (size_t i = 0; i < six.size(); ++i) REQUIRE(six[i] == 6.0f * static_cast<float>(i));
    CHECK(no_reports());
  }
}

TEST_CASE("shared memory: a block's sum, and the race in it without a barrier") {
  for (Order order : orders) {
    Fresh fresh;
    options().threads = order;
    Stream stream;
    const size_t n = 1'000'000;
    Array<float> x(std::vector<float>(n, 1.0f)), sums(64);
    const auto start = std::chrono::steady_clock::now();
    CHECK(launch(block_sum<true>, 64, 256, 0, stream, n, x.data, sums.data) == cudaSuccess);
    MESSAGE("sum of 1e6 elements: " << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()
                                    << " s");
    const std::vector<float> parts = sums.host();
    CHECK(std::accumulate(parts.begin(), parts.end(), 0.0) == n);
    CHECK(no_reports());
    const size_t named = hs::emulator::symbols_named();
    CHECK(launch(block_sum<false>, 64, 256, 0, stream, n, x.data, sums.data) != cudaSuccess);
    // The kernel when it is loaded, the report's kernel and array; not the array for each of 8,000 accesses that race.
    CHECK(hs::emulator::symbols_named() - named < 10);
    check_report({"block_sum<false>", "race on ", "::partial[", "block (", "thread ", "without a barrier"});
  }
}

// `c ? element : 0` is a float in CUDA. Here it would be an int, so it must not compile.
template <class Other>
concept MixesWithElement = requires(bool c, hs::SharedReference<float> element, Other other) {
  c ? element : other;
};
static_assert(MixesWithElement<float> && !MixesWithElement<int> && !MixesWithElement<double>);

TEST_CASE("shared memory: one mistake, one report") {
  Fresh fresh;
  Stream stream;
  Array<float> y(64), x(iota(64));
  CHECK(launch(wrong::read_unwritten, 1, 64, 0, stream, y.data) == cudaErrorLaunchFailure);
  check_report({"read_unwritten", "thread 23 reads ", "::tile[40]", "no thread of this block has written"});
  CHECK(launch(wrong::shared_out_of_bounds, 1, 64, 0, stream, y.data) == cudaErrorIllegalAddress);
  check_report({"shared_out_of_bounds", "thread (63,0,0)", "index 64 is out of bounds, it has 64 elements"});
  CHECK(launch(wrong::write_after_read, 1, 64, 0, stream, y.data) == cudaErrorLaunchFailure);
  check_report({"write_after_read", "thread 1 writes what thread 0 reads"});
  CHECK(launch(wrong::write_after_write, 1, 64, 0, stream, y.data) == cudaErrorLaunchFailure);
  check_report({"::flag[0]", "thread 1 writes what thread 0 wrote"});
  CHECK(launch(wrong::misaligned_vector, 1, 64, 0, stream, x.data, y.data) == cudaErrorMisalignedAddress);
  check_report({"misaligned_vector", "an access of 16 bytes at byte 4"});
#ifdef HS_TRAPS_MISALIGNED  // else a sanitizer reports it
  CHECK(launch(wrong::misaligned_cast, 1, 64, 0, stream, y.data) == cudaErrorMisalignedAddress);
  check_report({"misaligned_cast", "thread (0,0,0)", "a pointer that is less aligned than its type"});
#endif
}

TEST_CASE("barriers: divergence is reported, not waited for") {
  Fresh fresh;
  Stream stream;
  Array<float> y(64);
  CHECK(launch(wrong::exit_before_barrier, 2, 64, 0, stream, y.data) == cudaErrorLaunchFailure);
  check_report({"kernel wrong::exit_before_barrier", "block (0,0,0)",
                "threads 0-39 wait at the barrier kernels.cuh:", "threads 40-63 have exited"});
  CHECK(launch(wrong::two_barriers, 1, 64, 0, stream, y.data) == cudaErrorLaunchFailure);
  check_report({"two_barriers", "divergent barrier: thread 0 waits at kernels.cuh:", "thread 63 at kernels.cuh:"});
  Array<int> out(64);
  CHECK(launch(wrong::missing_lane, 1, 32, 0, stream, out.data) == cudaErrorLaunchFailure);
  check_report(
      {"missing_lane", "threads 0-8,10-31 wait at the warp collective", "0xffffffff", "threads 9 have exited"});
  Array<float> x(std::vector<float>(256, 1.0f)), sums(1);  // and the next kernel finds everything in order
  CHECK(launch(block_sum<true>, 1, 256, 0, stream, 256, x.data, sums.data) == cudaSuccess);
  CHECK(sums.host()[0] == 256);
}

TEST_CASE("a launch that begins early uses global memory only once it has waited, in every thread") {
  Fresh fresh;
  Stream stream;
  using wrong::Use;
  Array<float> y(128);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const auto begin_early = [&](Use use, int first, int waiting, unsigned attributes = 1) {
    const cudaLaunchConfig_t config{2, 64, 0, stream, &early, attributes};
    return cudaLaunchKernelEx(&config, wrong::begin_early, use, first, waiting, y.data);
  };
  for (const Use use : {Use::write, Use::count, Use::copy}) {
    CHECK(begin_early(use, 128, 128) == cudaSuccess);
    CHECK(begin_early(use, 0, 128, 0) == cudaSuccess);  // not early
    CHECK(y.host()[127] == 127);
    CHECK(no_reports());
    for (const int first : {0, 40, 64, 127}) {
      CHECK(begin_early(use, first, 128) != cudaSuccess);
      const std::string block = "block (" + std::to_string(first / 64),
                        thread = "thread (" + std::to_string(first % 64);
      check_report({"begin_early", block.c_str(), thread.c_str(), "before it waits for the launch in front"});
    }
  }
  CHECK(begin_early(Use::write, 128, 100) == cudaErrorLaunchFailure);
  check_report({"begin_early", "block (1,0,0), thread (36,0,0)", "has not waited for the launch in front"});
  options().code = 80;  // which has no wait
  CHECK(begin_early(Use::write, 128, 128) != cudaSuccess);
  check_report({"begin_early", "thread (0,0,0)", "writes memory", "before it waits for the launch in front"});
}

TEST_CASE("warps: shuffles, votes, atomics and __syncwarp") {
  for (Order order : orders) {
    Fresh fresh;
    options().threads = order;
    Stream stream;
    Array<int> out(std::vector<int>(448, -1));
    CHECK(launch(votes_and_shuffles, 1, 64, 0, stream, out.data) == cudaSuccess);
    const std::vector<int> got = out.host();
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32, warp = t / 32 * 32;
      const auto at = [&](int part) { return got[static_cast<size_t>(64 * part + t)]; };
      REQUIRE(at(0) == 100 + warp + 3);
      REQUIRE(at(1) == (lane + 5 < 32 ? t + 5 : t));
      REQUIRE(at(2) == t / 8 * 8 + (lane + 1) % 8);
      REQUIRE(at(3) == static_cast<int>(0x49249249u));
      REQUIRE(at(4) == 1);
      REQUIRE(at(5) == 32 + 100);
      REQUIRE(at(6) == (lane < 4 ? (t ^ 1) : -1));
    }
    Array<float> x(iota(128)), y(128), sum(1);
    CHECK(launch(warp_sums, 1, 128, 0, stream, x.data, sum.data) == cudaSuccess);
    CHECK(sum.host()[0] == 127 * 64);
    Array<int> values(std::vector<int>(1000, 5));
    Array<unsigned> counts(std::vector<unsigned>(16, 1u));
    CHECK(launch(histogram, 3, 64, 0, stream, 1000, values.data, counts.data) == cudaSuccess);
    CHECK(counts.host()[5] == 3001);
    CHECK(counts.host()[4] == 1);
    CHECK(launch(reverse_in_warp<true>, 1, 128, 512, stream, x.data, y.data) == cudaSuccess);
    for (size_t t = 0; t < 128; ++t) REQUIRE(y.host()[t] == static_cast<float>(t / 32 * 32 + 31 - t % 32));
    CHECK(no_reports());
    CHECK(launch(reverse_in_warp<false>, 1, 128, 512, stream, x.data, y.data) == cudaErrorLaunchFailure);
    check_report({"reverse_in_warp<false>", "dynamic shared memory["});
    CHECK(launch(reverse_in_warp<true>, 1, 128, 508, stream, x.data, y.data) == cudaErrorIllegalAddress);
    check_report({"dynamic shared memory: index 127 is out of bounds, it has 127 elements"});
  }
}

TEST_CASE("cp.async arrives at the wait") {
  Fresh fresh;
  Stream stream;
  Array<float> x(iota(101)), y(128);
  CHECK(launch(copy_async<true>, 1, 32, 0, stream, 101, x.data, y.data) == cudaSuccess);
  const std::vector<float> got = y.host();
  for (size_t i = 0; i < 128; ++i) REQUIRE(got[127 - i] == (i < 101 ? static_cast<float>(i) : 0.0f));
  CHECK(launch(copy_async<false>, 1, 32, 0, stream, 101, x.data, y.data) == cudaErrorLaunchFailure);
  check_report({"copy_async<false>", "cp.async that may still be under way"});
}

TEST_CASE("global memory: an access past the end, before the start or after the free names its thread") {
  Fresh fresh;
  Stream stream;
  if (hs::test::with_address_sanitizer) {  // which stops the program at the access itself
    const auto is_poisoned =
        reinterpret_cast<int (*)(const volatile void*)>(dlsym(RTLD_DEFAULT, "__asan_address_is_poisoned"));
    Array<float> x(64), y(63);
    CHECK(launch(wrong::one_too_far, 1, 64, 0, stream, 62, y.data) == cudaSuccess);
    CHECK(is_poisoned(y.data + 62) == 0);
    CHECK(is_poisoned(y.data + 63) != 0);
    CHECK(is_poisoned(y.data + 64) != 0);
    CHECK(is_poisoned(x.data + 64) != 0);
    CHECK(is_poisoned(x.data - 1) != 0);
    float* freed = nullptr;
    CHECK(cudaMalloc(&freed, 4) == cudaSuccess);
    CHECK(cudaFree(freed) == cudaSuccess);
    CHECK(is_poisoned(freed) != 0);
    return;
  }
  for (Order order : orders) {
    options().threads = order;
    Array<float> x(iota(64)), y(64), odd(63), page(1024);
    CHECK(launch(wrong::read_one_too_far, 2, 32, 0, stream, 63, x.data, y.data) == cudaSuccess);
    CHECK(no_reports());
    // The last thread of all, by the hardware, at the access.
    CHECK(launch(wrong::read_one_too_far, 2, 32, 0, stream, 64, x.data, y.data) == cudaErrorIllegalAddress);
    check_report({"kernel wrong::read_one_too_far(", ", block (1,0,0), thread (31,0,0): reads memory ",
                  "0 bytes past the end of an allocation of 256 bytes"});
    CHECK(launch(wrong::one_too_far, 1, 128, 0, stream, 64, y.data) == cudaErrorIllegalAddress);
    check_report({"kernel wrong::one_too_far(", ", block (0,0,0), thread (64,0,0): writes memory ",
                  "0 bytes past the end of an allocation of 256 bytes"});
    CHECK(launch(wrong::write_before_start, 1, 64, 0, stream, 64, page.data) == cudaErrorIllegalAddress);
    check_report({"kernel wrong::write_before_start(", ", block (0,0,0), thread (0,0,0): writes memory ",
                  "4 bytes before the start of an allocation of 4096 bytes"});
    // Where the hardware cannot tell: in what is left of the page, and of the last 16 bytes.
    CHECK(launch(wrong::write_before_start, 2, 32, 0, stream, 64, y.data) == cudaErrorIllegalAddress);
    check_report({"kernel wrong::write_before_start(", ", block (0,0,0), thread (0,0,0): writes memory ",
                  " before the start of an allocation of 256 bytes"});
    CHECK(launch(wrong::one_too_far, 1, 64, 0, stream, 62, odd.data) == cudaSuccess);
    CHECK(launch(wrong::one_too_far, 1, 64, 0, stream, 63, odd.data) == cudaErrorIllegalAddress);
    check_report({"kernel wrong::one_too_far(", ", block (0,0,0), thread (63,0,0): writes memory ",
                  "past the end of an allocation of 252 bytes"});
    CHECK(launch(wrong::straddle, 1, 32, 0, stream, 63, odd.data, y.data) == cudaErrorIllegalAddress);
    check_report({"kernel wrong::straddle(", ", thread (15,0,0): reads a vector of 16 bytes whose last byte is ",
                  "3 bytes past the end of an allocation of 252 bytes"});
    CHECK(launch(wrong::read_one_too_far, 1, 64, 0, stream, 63, odd.data, y.data) == cudaSuccess);
    CHECK(std::isnan(y.host()[62]));
    float* freed = nullptr;
    CHECK(cudaMalloc(&freed, 256) == cudaSuccess);
    CHECK(cudaFree(freed) == cudaSuccess);
    CHECK(launch(axpy<float>, 1, 64, 0, stream, 2, 1.0f, freed, y.data) == cudaErrorIllegalAddress);
    check_report({"kernel axpy<float>(", ": reads memory at byte ", " of a freed allocation of 256 bytes"});
    float* nothing = nullptr;
    CHECK(launch(fill, 1, 64, 0, stream, 64, nothing, 1.0f) == cudaErrorIllegalAddress);
    check_report({"kernel fill(", ": writes memory at address ", ", which is not on the device"});
    // And afterwards everything works: arrays that are found only through memory, too.
    CHECK(launch(fill, 1, 32, 0, stream, 32, y.data, 7.0f) == cudaSuccess);
    Array<float*> arrays(std::vector<float*>{x.data, y.data});
    CHECK(launch(swap_through_table, 1, 32, 0, stream, arrays.data) == cudaSuccess);
    CHECK(x.host()[31] == 7);
    CHECK(no_reports());
  }
}

TEST_CASE("memory: fresh and freed memory is NaN, sizes, failures, limits") {
  Fresh fresh;
  const size_t before = hs::emulator::live_bytes();
  {
    Array<float> y(100);
    CHECK(std::isnan(y.host()[99]));
    CHECK(reinterpret_cast<uintptr_t>(y.data) % 16 == 0);
    CHECK(hs::emulator::live_bytes() == before + 400);
    float host[101];
    CHECK(cudaMemcpy(host, y.data, 404, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(host, y.data, 400, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemset(y.data + 1, 0, 400) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaFree(y.data + 1) == cudaErrorInvalidValue);
  }
  CHECK(hs::emulator::live_bytes() == before);
  hs::emulator::fail_malloc(2);
  void *first = nullptr, *second = nullptr;
  CHECK(cudaMalloc(&first, 10) == cudaSuccess);
  CHECK(cudaMalloc(&second, 10) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&second, 10) == cudaSuccess);
  CHECK(cudaFree(first) == cudaSuccess);
  CHECK(cudaFree(second) == cudaSuccess);
  options().total_memory = 1 << 20;
  size_t free_bytes = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total) == cudaSuccess);
  CHECK(total == 1 << 20);
  CHECK(cudaMalloc(&first, (1 << 20) + 1) == cudaErrorMemoryAllocation);
}

TEST_CASE("launches: limits") {
  Fresh fresh;
  Stream stream;
  Array<float> y(64), x(64);
  CHECK(launch(fill, 1, 1025, 0, stream, 64, y.data, 1.0f) == cudaErrorInvalidConfiguration);
  CHECK(launch(fill, 0, 64, 0, stream, 64, y.data, 1.0f) == cudaErrorInvalidConfiguration);
  CHECK(launch(fill, dim3(1, 65536), 64, 0, stream, 64, y.data, 1.0f) == cudaErrorInvalidConfiguration);
  CHECK(launch(fill, 1, 64, 0, nullptr, 64, y.data, 1.0f) == cudaErrorInvalidResourceHandle);
  const auto kernel = reverse_in_warp<true>;
  CHECK(launch(kernel, 1, 64, 48 * 1024 + 1, stream, x.data, y.data) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1) ==
        cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024) == cudaSuccess);
  CHECK(launch(kernel, 1, 64, 227 * 1024, stream, x.data, y.data) == cudaSuccess);
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess);
  CHECK(attributes.binaryVersion == 90);
  CHECK(attributes.maxDynamicSharedSizeBytes == 227 * 1024);
}

}  // namespace
