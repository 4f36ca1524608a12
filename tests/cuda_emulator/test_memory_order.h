// Global memory between the threads and blocks of a launch: no order is promised, and no write is seen by another block
// before a fence. Part of test_cuda_emulator.cpp.
#pragma once

#include "cuda_emulator/kernels.cuh"
#include "cuda_emulator/test_support.h"
#include "tests/support/sanitized.h"

namespace {

using namespace emu;

TEST_CASE("global memory: a result that depends on the order of blocks or threads is reported") {
  for (const hs::emulator::Order order :
       {hs::emulator::Order::forward, hs::emulator::Order::reverse, hs::emulator::Order::random}) {
    for (const bool pages : {false, true}) {
      Fresh fresh;
      options().every_order = true;
      options().private_pages = pages;
      options().threads = order;
      Stream stream;
      Array<int> y(std::vector<int>(40, 7));
      CHECK(launch(wrong::last_block_wins, 3, 1, 0, stream, y.data) == cudaErrorLaunchFailure);
      check_report(
          {"last_block_wins", "depends on the order of threads and blocks", "at byte 0 of an allocation of 160"});
      CHECK(launch(wrong::last_thread_wins, 1, 64, 0, stream, y.data) == cudaErrorLaunchFailure);
      check_report({"last_thread_wins", "depends on the order of threads and blocks"});
      CHECK(launch(wrong::last_thread_wins, 1, 1, 0, stream, y.data) == cudaSuccess);

      Array<float> x(std::vector<float>(1000, 1)), z(std::vector<float>(1000, 2));
      CHECK(launch(axpy<float>, 4, 256, 0, stream, 1000, 3.0f, x.data, z.data) == cudaSuccess);
      for (const float value : z.host()) REQUIRE(value == 5);  // in place, and once
      Array<float*> table(std::vector<float*>{x.data, z.data});
      CHECK(launch(swap_through_table, 1, 32, 0, stream, table.data) == cudaSuccess);
      CHECK(x.host()[3] == 5);  // memory that only a pointer in memory leads to
      CHECK(z.host()[3] == 1);
      CHECK(no_reports());
    }
  }
}

TEST_CASE("global memory: what a block has not published by a fence is stale for the other blocks") {
  Fresh fresh;
  Stream stream;
  Array<float> x(std::vector<float>(8 * 32, 1)), total(1);
  Array<unsigned> count(std::vector<unsigned>(1, 0));
  const auto sum = [&](bool with_fence) {
    const auto kernel = with_fence ? sum_by_last_block<true> : sum_by_last_block<false>;
    Array<float> sums(std::vector<float>(8, -100));
    REQUIRE(launch(kernel, 8, 32, 0, stream, x.data, sums.data, count.data, total.data) == cudaSuccess);
    for (const float value : sums.host()) REQUIRE(value == 32);  // all is there after the launch
    REQUIRE(count.host()[0] == 0);
    return total.host()[0];
  };
  for (const bool every_order : {false, true}) {
    options().every_order = every_order;
    options().private_pages = true;
    CHECK(sum(true) == 8 * 32);
    CHECK(sum(false) == 32 - 7 * 100);  // the last block sees its own sum alone
    options().private_pages = false;
    CHECK(sum(false) == 8 * 32);
  }
  CHECK(no_reports());
}

TEST_CASE("global memory: a vector that is less aligned than its size is reported") {
  Fresh fresh;
  Stream stream;
  Array<float> x(std::vector<float>(64, 1)), y(std::vector<float>(64, 2));
  CHECK(launch(twice_vectors, 1, 32, 0, stream, 1, x.data + 1, y.data) == cudaErrorMisalignedAddress);
  check_report({"twice_vectors", "reads a vector of 16 bytes at byte 4 of an allocation of 256 bytes"});
  CHECK(launch(twice_vectors, 1, 32, 0, stream, 1, x.data, y.data + 2) == cudaErrorMisalignedAddress);
  check_report({"twice_vectors", "writes a vector of 16 bytes at byte 8"});
}

// Its own kernel: no other test has launched it.
__global__ void never_launched(int* y) { y[threadIdx.x] = 1; }

TEST_CASE("captures: a kernel that is launched there for the first time is told, and only then") {
  Fresh fresh;
  Stream stream;
  Array<int> y(std::vector<int>(32, 7));
  (void)hs::emulator::take_first_launches_in_captures();
  for (const bool first : {true, false}) {
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(launch(never_launched, 1, 32, 0, stream, y.data) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    const std::vector<std::string> told = hs::emulator::take_first_launches_in_captures();
    REQUIRE(told.size() == (first ? 1 : 0));
    if (first) CHECK(told[0].find("never_launched") != std::string::npos);
  }
}

TEST_CASE("global memory: writes beside an allocation are found with private pages and in every order, too" *
          doctest::skip(hs::test::with_address_sanitizer)) {  // which stops the program at the access itself
  Fresh fresh;
  options().every_order = options().private_pages = true;
  Stream stream;
  Array<float> x(std::vector<float>(3, 1)), y(std::vector<float>(3, 2));
  CHECK(launch(axpy<float>, 1, 32, 0, stream, 4, 3.0f, x.data, y.data) != cudaSuccess);
  check_report({"axpy", "thread (3,0,0)"});
}

}  // namespace
