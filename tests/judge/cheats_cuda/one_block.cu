// Cheat: every block does the first block's work. Refused by: written|rows|emulator.
#include "honest.cuh"

__global__ void first_block_kernel(int64_t size, const float* x, float* y) {
  for (int64_t i = threadIdx.x; i < size && i < blockDim.x; i += blockDim.x) y[i] = relu_of(x[i]);
}

void run(const ReluForward& call) { launch_elements(first_block_kernel, call); }

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
