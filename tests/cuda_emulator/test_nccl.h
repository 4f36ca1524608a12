// NCCL's stand-in, with ranks that are threads, each with a stream of its own. Part of test_cuda_emulator.cpp. With
// ranks that are processes, and what its faults lead to: tests/ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "cuda_emulator/test_support.h"
#include "engine/ranks/nccl.cuh"

namespace {

using namespace emu;
using hs::cuda::nccl;
using hs::cuda::nccl_bf16;
using hs::cuda::nccl_f32;
using hs::cuda::nccl_sum;
using hs::cuda::NcclComm;

struct Member {
  int rank;
  NcclComm* comm;
  cudaStream_t stream;
};

// Each body returns whether all was well: doctest's checks are made on its own thread.
void on_members(int size, const std::function<bool(const Member&)>& body) {
  hs::cuda::NcclId id;
  REQUIRE(nccl().GetUniqueId(&id) == 0);
  std::atomic<int> well = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Member member{rank, nullptr, nullptr};
      if (nccl().CommInitRank(&member.comm, size, id, rank) != 0) return;
      if (cudaStreamCreateWithFlags(&member.stream, cudaStreamNonBlocking) != cudaSuccess) return;
      well += body(member);
      nccl().CommAbort(member.comm);
      cudaStreamDestroy(member.stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(well == size);
}

// Each rank sends its values to the next one.
bool send_round(const Member& member, int size, const float* from, float* to, size_t count) {
  const int next = (member.rank + 1) % size, before = (member.rank + size - 1) % size;
  return nccl().GroupStart() == 0 && nccl().Send(from, count, nccl_f32, next, member.comm, member.stream) == 0 &&
         nccl().Recv(to, count, nccl_f32, before, member.comm, member.stream) == 0 && nccl().GroupEnd() == 0;
}

bool all_equal(const Array<float>& array, float value) {
  const std::vector<float> got = array.host();
  return std::all_of(got.begin(), got.end(), [value](float each) { return each == value; });
}

TEST_CASE("nccl: messages and sums of several ranks, at once, under any delay, captured and replayed") {
  for (const bool delays : {false, true}) {
    for (const int size : {2, 3}) {
      Fresh fresh;
      options().delay_streams = delays;
      on_members(size, [&](const Member& member) {
        constexpr size_t count = 100000;  // more than a socket holds
        const auto rank = static_cast<float>(member.rank);
        const auto before = static_cast<float>((member.rank + size - 1) % size);
        const auto sum_of_all = static_cast<float>(size * (size - 1) / 2), ranks = static_cast<float>(size);
        Array<float> own(std::vector<float>(count, rank)), other(count), sum(std::vector<float>(7, rank));
        const auto work = [&] {
          return send_round(member, size, own.data, other.data, count) &&
                 nccl().AllReduce(sum.data, sum.data, 7, nccl_f32, nccl_sum, member.comm, member.stream) == 0;
        };
        if (!work() || cudaStreamSynchronize(member.stream) != cudaSuccess) return false;
        bool is_well = all_equal(other, before) && all_equal(sum, sum_of_all);

        cudaMemset(other.data, 0xff, count * sizeof(float));
        cudaStreamBeginCapture(member.stream, cudaStreamCaptureModeThreadLocal);
        is_well = work() && is_well;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        is_well = cudaStreamEndCapture(member.stream, &graph) == cudaSuccess && is_well;
        is_well = cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess && is_well;
        is_well = !all_equal(other, before) && all_equal(sum, sum_of_all) && is_well;  // not yet
        for (int i = 0; i < 2; ++i) is_well = cudaGraphLaunch(executable, member.stream) == cudaSuccess && is_well;
        is_well = cudaStreamSynchronize(member.stream) == cudaSuccess && is_well;
        is_well = all_equal(other, before) && all_equal(sum, ranks * ranks * sum_of_all) && is_well;
        cudaGraphDestroy(graph);
        cudaGraphExecDestroy(executable);
        return is_well;
      });
      CHECK(no_reports());
    }
  }
}

TEST_CASE("nccl: arguments that it refuses") {
  Fresh fresh;
  on_members(2, [](const Member& member) {
    Array<float> values(4);
    float on_host[4] = {};
    const auto send = [&](const void* from, size_t count, int type, int peer) {
      return nccl().Send(from, count, type, peer, member.comm, member.stream);
    };
    return send(on_host, 4, nccl_f32, 1 - member.rank) != 0 && send(values.data, 5, nccl_f32, 1 - member.rank) != 0 &&
           send(values.data, 4, 3, 1 - member.rank) != 0 && send(values.data, 4, nccl_f32, 2) != 0 &&
           send(values.data, 4, nccl_f32, member.rank) != 0 && send(values.data, 8, nccl_bf16, -1) != 0 &&
           nccl().GroupEnd() != 0 &&
           nccl().AllReduce(values.data, on_host, 4, nccl_f32, nccl_sum, member.comm, member.stream) != 0;
  });
}

TEST_CASE("nccl: ranks that do not make the same calls are reported") {
  Fresh fresh;
  on_members(2, [](const Member& member) {
    Array<float> values(std::vector<float>(8, 1.0f));
    const size_t count = member.rank == 0 ? 8 : 4;
    if (nccl().AllReduce(values.data, values.data, count, nccl_f32, nccl_sum, member.comm, member.stream) != 0) {
      return true;  // the other one has reported it already
    }
    return cudaStreamSynchronize(member.stream) != cudaSuccess;
  });
  const std::vector<std::string> reports = hs::emulator::take_reports();
  REQUIRE(!reports.empty());
  CHECK(reports[0].find("do not make the same calls in the same order") != std::string::npos);
}

}  // namespace
