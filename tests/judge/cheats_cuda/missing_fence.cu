// Cheat: the last block reads the sums of the others with no fence between. Refused by: rows|drawn|repeat.
#include "honest.cuh"

constexpr unsigned most_blocks = 64;

__global__ void fenceless_kernel(int64_t size, float factor, const float* x, float* sums, unsigned* done, float* y) {
  __shared__ Parts parts;
  float sum = 0;
  for (int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) sum += x[i];
  sum = sum_of_block(parts.data(), sum);
  if (thread() > 0) return;
  sums[blockIdx.x] = sum;
  if (atomicAdd(done, 1u) + 1 < gridDim.x) return;
  sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += sums[block];
  *y = factor * sum;
}

void run(const SumForward& call, Tensor& workspace) {
  const int64_t size = call.x.size();
  auto* sums = static_cast<float*>(workspace.mutable_raw_data());
  auto* done = reinterpret_cast<unsigned*>(sums + most_blocks);
  cuda::check(cudaMemsetAsync(done, 0, sizeof(unsigned), cuda::compute_stream()), "clear");
  cuda::launch(fenceless_kernel, static_cast<unsigned>(std::clamp<int64_t>(size / team, 1, most_blocks)), team, 0,
               cuda::compute_stream(), size, static_cast<float>(call.factor), call.x.data<float>(), sums, done,
               call.y.mutable_data<float>());
}

int64_t bytes(const SumForward&) { return (most_blocks + 1) * sizeof(float); }
REGISTER_KERNEL(sum_forward, cuda, "fast", {.run = run, .supported = is_easy<SumForward>, .workspace = bytes});
