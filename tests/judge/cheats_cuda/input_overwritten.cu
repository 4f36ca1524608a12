// Cheat: leaves the result in the input, too, where the next kernel finds it in the cache. Refused by: inputs.
#include "honest.cuh"

__global__ void in_place_kernel(int64_t size, float* x, float* y) {
  for (int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) y[i] = x[i] = relu_of(x[i]);
}

void run(const ReluForward& call) {
  const int64_t size = call.x.size();
  cuda::launch(in_place_kernel, cuda::blocks_for(size), cuda::block_threads, 0, cuda::compute_stream(), size,
               const_cast<float*>(call.x.data<float>()), call.y.mutable_data<float>());
}

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
