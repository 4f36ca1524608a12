// Streams, events, copies and graphs of the CUDA emulator. Part of test_cuda_emulator.cpp. That each wait of the
// loader's protocol is needed: tests/cuda/runtime.cpp.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda_emulator/kernels.cuh"
#include "cuda_emulator/test_support.h"

namespace {

using namespace emu;

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
  CHECK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault) == cudaErrorNotSupported);
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
  const std::function<cudaError_t()> attempts[] = {
      [&] { return cudaMalloc(&pointer, 16); },
      [&] { return cudaFree(x.data); },
      [&] { return cudaStreamSynchronize(stream); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaEventQuery(event); },
      [&] { return cudaMemcpy(host, x.data, 128, cudaMemcpyDeviceToHost); },
      [&] { return cudaMemcpyAsync(x.data, host, 128, cudaMemcpyHostToDevice, stream); },
  };
  for (const auto& attempt : attempts) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(launch(fill, 1, 32, 0, stream, 32, x.data, 1.0f) == cudaSuccess);
    CHECK(attempt() == cudaErrorStreamCaptureUnsupported);
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
