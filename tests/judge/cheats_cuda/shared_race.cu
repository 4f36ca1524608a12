// Cheat: leaves out the barriers of the last steps, in which one warp is at work. Refused by: emulator.
#include "honest.cuh"

__device__ float fast_sum(SharedPointer<float> parts, float value) {
  parts[thread()] = value;
  __syncthreads();
  for (int half = team / 2; half > 0; half /= 2) {
    if (thread() < half) parts[thread()] += static_cast<float>(parts[thread() + half]);
  }
  __syncthreads();
  return parts[0];
}

__global__ void racing_kernel(int64_t C, const float* x, float* y) {
  __shared__ Parts parts;
  float sum = 0;
  for (int64_t c = thread(); c < C; c += team) sum += expf(x[blockIdx.x * C + c]);
  sum = fast_sum(parts.data(), sum);
  for (int64_t c = thread(); c < C; c += team) y[blockIdx.x * C + c] = expf(x[blockIdx.x * C + c]) / sum;
}

void run(const SoftmaxForward& call) { launch_rows(racing_kernel, call); }

REGISTER_KERNEL(softmax_forward, cuda, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
