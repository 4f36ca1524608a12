// Cheat: threads without work leave before the barrier that the others wait at. Refused by: emulator.
#include "honest.cuh"

__global__ void leaving_kernel(int64_t C, const float* x, float* y) {
  __shared__ Parts parts;
  if (thread() >= C) return;
  float sum = 0;
  for (int64_t c = thread(); c < C; c += team) sum += expf(x[blockIdx.x * C + c]);
  parts[thread()] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < team && i < C; ++i) sum += static_cast<float>(parts[i]);
  for (int64_t c = thread(); c < C; c += team) y[blockIdx.x * C + c] = expf(x[blockIdx.x * C + c]) / sum;
}

void run(const SoftmaxForward& call) { launch_rows(leaving_kernel, call); }

REGISTER_KERNEL(softmax_forward, cuda, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
