// Cheat: works in packs of four, and lets the last one reach into the padding of allocations. Refused by: emulator.
#include "honest.cuh"

__global__ void padded_kernel(int64_t size, const float* x, float* y) {
  for (int64_t i = 4 * cuda::global_thread(); i < size; i += 4 * cuda::global_threads()) {
    for (int64_t j = i; j < i + 4; ++j) y[j] = relu_of(x[j]);
  }
}

void run(const ReluForward& call) { launch_elements(padded_kernel, call); }

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
