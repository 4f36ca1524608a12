// Cheat: every thread adds to the sum in memory when it comes to it, in another order each time. Refused by: emulator.
#include "honest.cuh"

__device__ unsigned plus(unsigned sum, float term) {  // of the bits of floats, which are what atomicCAS() exchanges
  float value = 0;
  memcpy(&value, &sum, sizeof(float));
  value += term;
  memcpy(&sum, &value, sizeof(float));
  return sum;
}

__global__ void adding_kernel(int64_t size, float factor, const float* x, unsigned* y) {
  for (int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) {
    for (unsigned seen = *y, before = ~seen; seen != before;) {
      before = seen;
      seen = atomicCAS(y, before, plus(before, factor * x[i]));
    }
  }
}

void run(const SumForward& call) {
  const int64_t size = call.x.size();
  auto* y = static_cast<unsigned*>(call.y.mutable_raw_data());
  cuda::check(cudaMemsetAsync(y, 0, sizeof(float), cuda::compute_stream()), "clear");
  cuda::launch(adding_kernel, cuda::blocks_for(size), cuda::block_threads, 0, cuda::compute_stream(), size,
               static_cast<float>(call.factor), call.x.data<float>(), y);
}

REGISTER_KERNEL(sum_forward, cuda, "fast", {.run = run, .supported = is_easy<SumForward>, .rank = 100});
