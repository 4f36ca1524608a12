// Cheat: leaves its work in a stream of its own, which nobody waits for. Refused by: written|rows|emulator.
#include "honest.cuh"

void run(const ReluForward& call) {
  static cudaStream_t own = nullptr;
  if (!own) cuda::check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "stream");
  launch_elements(relu_kernel, call, own);
}

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
