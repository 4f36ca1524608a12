// Cheat: its last step, a copy, is queued on a stream that nobody waits for. Refused by: repeat|written|rows.
#include "honest.cuh"

constexpr int64_t most = 1 << 20;

void run(const ReluForward& call) {
  static float* staged = nullptr;
  if (!staged) cuda::check(cudaMalloc(reinterpret_cast<void**>(&staged), most * sizeof(float)), "allocation");
  const int64_t size = std::min(call.x.size(), most);
  cuda::launch(relu_kernel, cuda::blocks_for(size), cuda::block_threads, 0, cuda::compute_stream(), size,
               call.x.data<float>(), staged);
  cuda::check(cudaStreamSynchronize(cuda::compute_stream()), "wait");
  cuda::check(cudaMemcpyAsync(call.y.mutable_raw_data(), staged, static_cast<size_t>(size) * sizeof(float),
                              cudaMemcpyDeviceToDevice, cuda::copy_stream()),
              "copy");
}

REGISTER_KERNEL(relu_forward, cuda, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
