// Streams, events, copies and graphs of the CUDA emulator. Part of test_cuda_emulator.cpp.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "cuda_emulator/kernels.cuh"
#include "cuda_emulator/test_support.h"

namespace {

using namespace emu;

// The loader's protocol: a pinned buffer is refilled after `uploaded`, a device buffer after `released`; kernels wait
// for the upload. Returns whether all batches were seen whole. One of the waits can be left out.
enum class Missing { nothing, wait_for_upload, wait_before_refill, wait_for_release };
bool loader_run(Missing missing, int n, int batches) {
  Stream compute, copy;
  Event uploaded[2], released[2];
  Pinned<float> host0(static_cast<size_t>(n)), host1(static_cast<size_t>(n));
  Array<float> device0(static_cast<size_t>(n)), device1(static_cast<size_t>(n));
  Array<float> sum(std::vector<float>(static_cast<size_t>(n), 0.0f));
  float* hosts[2] = {host0.data, host1.data};
  float* devices[2] = {device0.data, device1.data};
  float expected = 0;
  for (int b = 0; b < batches; ++b) {
    const int slot = b % 2;
    if (missing != Missing::wait_before_refill) cudaEventSynchronize(uploaded[slot]);
    std::fill_n(hosts[slot], n, static_cast<float>(b + 1));
    if (missing != Missing::wait_for_release) cudaStreamWaitEvent(copy, released[slot]);
    cudaMemcpyAsync(devices[slot], hosts[slot], static_cast<size_t>(n) * 4, cudaMemcpyHostToDevice, copy);
    cudaEventRecord(uploaded[slot], copy);
    if (missing != Missing::wait_for_upload) cudaStreamWaitEvent(compute, uploaded[slot]);
    launch(add_from, 1, 32, 0, compute, n, sum.data, devices[slot]);
    cudaEventRecord(released[slot], compute);
    expected += static_cast<float>(b + 1);
  }
  CHECK(cudaStreamSynchronize(compute) == cudaSuccess);
  CHECK(cudaStreamSynchronize(copy) == cudaSuccess);
  const std::vector<float> got = sum.host();
  return std::all_of(got.begin(), got.end(), [&](float v) { return v == expected; });
}

TEST_CASE("streams: the loader's protocol is right under any delay, and wrong without any one of its waits") {
  Fresh fresh;
  int wrong_runs[4] = {};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    options().seed = seed;
    options().delay_streams = true;
    hs::emulator::reset();
    for (Missing missing :
         {Missing::nothing, Missing::wait_for_upload, Missing::wait_before_refill, Missing::wait_for_release}) {
      wrong_runs[static_cast<int>(missing)] += !loader_run(missing, 16, 8);
    }
  }
  MESSAGE("of 200 seeds, missing waits are seen by " << wrong_runs[1] << ", " << wrong_runs[2] << ", "
                                                     << wrong_runs[3]);
  CHECK(wrong_runs[0] == 0);
  for (int i = 1; i < 4; ++i) CHECK(wrong_runs[i] > 40);
  CHECK(no_reports());
}

TEST_CASE("streams: pageable memory is read at the call, pinned memory when the copy runs") {
  Fresh fresh;
  options().delay_streams = true;
  int pinned_late = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    options().seed = seed;
    hs::emulator::reset();
    Stream stream;
    Array<float> y(1), z(1);
    Pinned<float> pinned(1);
    float pageable = 1;
    pinned[0] = 1;
    cudaMemcpyAsync(y.data, &pageable, 4, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(z.data, pinned.data, 4, cudaMemcpyDefault, stream);
    pageable = pinned[0] = 2;
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(y.host()[0] == 1);
    pinned_late += z.host()[0] == 2;
    float back = 0;  // to pageable memory the call waits
    cudaMemcpyAsync(&back, y.data, 4, cudaMemcpyDeviceToHost, stream);
    CHECK(back == 1);
  }
  CHECK(pinned_late > 10);
  CHECK(pinned_late < 50);
}

TEST_CASE("streams: queries end, times, handles") {
  Fresh fresh;
  options().delay_streams = true;
  Stream stream;
  cudaEvent_t start, end;
  CHECK(cudaEventCreate(&start) == cudaSuccess);
  CHECK(cudaEventCreate(&end) == cudaSuccess);
  Array<float> y(1024);
  cudaEventRecord(start, stream);
  for (int i = 0; i < 20; ++i) launch(fill, 1, 1024, 0, stream, 1024, y.data, 1.0f);
  cudaEventRecord(end, stream);
  while (cudaEventQuery(end) == cudaErrorNotReady) {
  }
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds > 0);
  CHECK(cudaEventDestroy(start) == cudaSuccess);
  CHECK(cudaEventRecord(start, stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(end) == cudaSuccess);
  cudaStream_t blocking;
  CHECK(cudaStreamCreate(&blocking) == cudaErrorNotSupported);
}

TEST_CASE("graphs: capture copies the arguments, replay reads the memory; fork and join") {
  for (bool delay : {false, true}) {
    Fresh fresh;
    options().delay_streams = delay;
    Stream stream, side;
    Event fork, done;
    Pinned<float> input(32);
    std::fill_n(input.data, 32, 1.0f);
    Array<float> x(32), sum(std::vector<float>(32, 0.0f)), other(std::vector<float>(32, 0.0f));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    cudaMemcpyAsync(x.data, input.data, 128, cudaMemcpyHostToDevice, stream);
    cudaEventRecord(fork, stream);
    cudaStreamWaitEvent(side, fork);
    launch(add_from, 1, 32, 0, side, 32, other.data, x.data);
    cudaEventRecord(done, side);
    launch(add_from, 1, 32, 0, stream, 32, sum.data, x.data);
    cudaStreamWaitEvent(stream, done);
    launch(add_from, 1, 32, 0, stream, 32, sum.data, other.data);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(sum.host()[0] == 0);  // nothing has run
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
    CHECK(nodes == 4);
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    float expected = 0, in_other = 0;
    for (int step = 1; step <= 5; ++step) {
      std::fill_n(input.data, 32, static_cast<float>(step));
      CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
      in_other += static_cast<float>(step);
      expected += static_cast<float>(step) + in_other;
      CHECK(sum.host()[31] == expected);
    }
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(no_reports());
  }
}

TEST_CASE("graphs: what a capture forbids fails and invalidates it") {
  Fresh fresh;
  Stream stream, side;
  Event event;
  Array<float> x(32);
  float host[32] = {};
  void* pointer = nullptr;
  const auto attempts = std::vector<std::pair<cudaError_t, std::function<cudaError_t()>>>{
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaMalloc(&pointer, 16); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaFree(x.data); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(stream); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaEventQuery(event); }},
      {cudaErrorStreamCaptureUnsupported, [&] { return cudaMemcpy(host, x.data, 128, cudaMemcpyDeviceToHost); }},
      {cudaErrorStreamCaptureUnsupported,
       [&] { return cudaMemcpyAsync(x.data, host, 128, cudaMemcpyHostToDevice, stream); }},
  };
  for (const auto& [expected, attempt] : attempts) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(launch(fill, 1, 32, 0, stream, 32, x.data, 1.0f) == cudaSuccess);
    CHECK(attempt() == expected);
    CHECK(launch(fill, 1, 32, 0, stream, 32, x.data, 1.0f) == cudaErrorStreamCaptureInvalidated);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
  }
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaMalloc(&pointer, 16) == cudaSuccess);  // the mode allows it
  CHECK(cudaFree(pointer) == cudaSuccess);
  cudaEventRecord(event, stream);
  cudaStreamWaitEvent(side, event);
  launch(fill, 1, 32, 0, side, 32, x.data, 1.0f);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
}

}  // namespace
