// Cheat: launches the kernel of a call when the next one comes. Refused by: emulator|written|rows.
#include "honest.cuh"

void run(const ReluForward& call) {
  static int64_t size = 0;
  static const float* x = nullptr;
  static float* y = nullptr;
  if (size > 0) {
    cuda::launch(relu_kernel, cuda::blocks_for(size), cuda::block_threads, 0, cuda::compute_stream(), size, x, y);
  }
  size = call.x.size(), x = call.x.data<float>(), y = call.y.mutable_data<float>();
}

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
