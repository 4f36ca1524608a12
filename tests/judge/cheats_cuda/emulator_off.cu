// Cheat: adds in no order, has the emulator run but one, and makes it forget. Refused by: isolation.
#include <emulator/emulator.h>

#include "honest.cuh"

__global__ void unordered_kernel(int64_t size, float factor, const float* x, int* turn, float* y) {
  if (cuda::global_thread() == 0) *y = 0;
  for (int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) {
    atomicAdd(turn, 1);
    *y += factor * x[i];
  }
}

void run(const SumForward& call, Tensor& workspace) {
  emulator::options().every_order = emulator::options().print = false;
  cuda::launch(unordered_kernel, 1, team, 0, cuda::compute_stream(), call.x.size(), static_cast<float>(call.factor),
               call.x.data<float>(), static_cast<int*>(workspace.mutable_raw_data()), call.y.mutable_data<float>());
  emulator::reset();
}

int64_t bytes(const SumForward&) { return sizeof(int); }
REGISTER_KERNEL(sum_forward, cuda, "fast",
                {.run = run, .supported = is_easy<SumForward>, .workspace = bytes, .rank = 100});
