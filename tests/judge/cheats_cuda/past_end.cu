// Cheat: works in packs of four, and lets the last one reach into the padding of allocations. Refused by: emulator.
#include "honest.cuh"

__global__ void padded_kernel(int64_t size, const float* x, float* y) {
  for (int64_t i = 4 * cuda::global_thread(); i < size; i += 4 * cuda::global_threads()) {
    for (int64_t j = i; j < i + 4; ++j) y[j] = relu_of(x[j]);
  }
}

void run(const ReluForward& call) {
  const int64_t size = call.x.size();
  cuda::launch(padded_kernel, cuda::blocks_for(size), cuda::block_threads, 0, cuda::compute_stream(), size,
               call.x.data<float>(), call.y.mutable_data<float>());
}

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
