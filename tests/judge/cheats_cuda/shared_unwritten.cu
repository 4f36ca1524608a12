// Cheat: takes shared memory for 0 where it has written nothing. Refused by: emulator.
#include "honest.cuh"

__global__ void hoping_kernel(int64_t C, const float* x, float* y) {
  __shared__ Parts parts;
  float sum = 0;
  for (int64_t c = thread(); c < C; c += team) parts[thread()] = sum += expf(x[blockIdx.x * C + c]);
  __syncthreads();
  sum = 0;
  for (int i = 0; i < team; ++i) sum += static_cast<float>(parts[i]);
  for (int64_t c = thread(); c < C; c += team) y[blockIdx.x * C + c] = expf(x[blockIdx.x * C + c]) / sum;
}

void run(const SoftmaxForward& call) { launch_rows(hoping_kernel, call); }

REGISTER_KERNEL(softmax_forward, cuda, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
