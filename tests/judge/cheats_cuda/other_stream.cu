// Cheat: leaves its work in a stream of its own, which nobody waits for. Refused by: written|rows|emulator.
#include "honest.cuh"

void run(const ReluForward& call) {
  static cudaStream_t own = nullptr;
  if (!own) cuda::check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "stream");
  const int64_t size = call.x.size();
  cuda::launch(relu_kernel, cuda::blocks_for(size), cuda::block_threads, 0, own, size, call.x.data<float>(),
               call.y.mutable_data<float>());
}

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
