// The updates of LARS and LAMB (kernels/optimizer/layerwise.h). One block sums up the squares of a tensor, so that the
// order of additions is fixed; a second launch updates its numbers: blockIdx.y is the tensor.
#include "kernels/optimizer/layerwise.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/optimizer/optimizer.h"

namespace hs {
namespace {

constexpr int blocks_each = 32;  // of a tensor

struct Part {
  int begin, end;
  bool adapts;
  __device__ explicit Part(const int32_t* parts)
      : begin(parts[3 * blockIdx.y]), end(parts[3 * blockIdx.y + 1]), adapts(parts[3 * blockIdx.y + 2] != 0) {}
};

// norms (parts, 2): that of this block's tensor, and of what is measured.
template <class Update, class... State>
__global__ void part_norms_kernel(cuda::Previous previous, const int32_t* parts, Update update, const float* rates,
                                  const float* gradient, const float* value, float* norms, State*... state) {
  previous.wait();
  if (rates[rate_skip] != 0) return;
  update.begin(rates);
  const Part part(parts);
  const float decay = part.adapts ? update.rule.weight_decay : 0;
  float weights = 0, others = 0;
  for (int j = part.begin + static_cast<int>(threadIdx.x); j < part.end; j += static_cast<int>(blockDim.x)) {
    const float measured = update.measure(decay, gradient[j], value[j], state[j]...);
    weights += value[j] * value[j];
    others += measured * measured;
  }
  weights = cuda::block_sum(weights);
  __syncthreads();
  others = cuda::block_sum(others);
  if (threadIdx.x == 0) norms[2 * blockIdx.y] = sqrtf(weights), norms[2 * blockIdx.y + 1] = sqrtf(others);
}

template <class Update, class... State>
__global__ void part_update_kernel(cuda::Previous previous, const int32_t* parts, Update update, const float* rates,
                                   const float* norms, const float* gradient, float* value, State*... state) {
  previous.wait();
  if (rates[rate_skip] != 0) return;
  update.begin(rates);
  const Part part(parts);
  const float decay = part.adapts ? update.rule.weight_decay : 0;
  const float ratio = rate_of_part(update, part.adapts, decay, norms[2 * blockIdx.y], norms[2 * blockIdx.y + 1]);
  for (int64_t j = part.begin + cuda::global_thread(); j < part.end; j += cuda::global_threads()) {
    update(decay, ratio, gradient[j], value[j], state[j]...);
  }
}

template <class Call>
int64_t norms_bytes(const Call& call) {
  return call.parts.shape()[0] * 2 * static_cast<int64_t>(sizeof(float));
}

template <class Call, class Update, class... State>
void update_parts(const Call& call, Tensor& workspace, const Update& update, State*... state) {
  const auto count = static_cast<unsigned>(call.parts.shape()[0]);
  if (count == 0) return;
  float* norms = workspace.carve(0, {call.parts.shape()[0], 2}, DType::f32).template mutable_data<float>();
  const int32_t* parts = call.parts.template data<int32_t>();
  const float *rates = call.rates.template data<float>(), *g = call.gradient.template data<float>();
  float* w = call.value.template mutable_data<float>();
  cuda::launch(part_norms_kernel<Update, State...>, dim3(1, count), cuda::block_threads, 0, cuda::compute_stream(),
               parts, update, rates, g, w, norms, state...);
  cuda::launch(part_update_kernel<Update, State...>, dim3(blocks_each, count), cuda::block_threads, 0,
               cuda::compute_stream(), parts, update, rates, norms, g, w, state...);
}

void lars_step_cuda(const LarsStep& call, Tensor& workspace) {
  update_parts(call, workspace, LarsUpdate{call.rule}, call.velocity.mutable_data<float>());
}

void lamb_step_cuda(const LambStep& call, Tensor& workspace) {
  update_parts(call, workspace, LambUpdate{call.rule}, call.mean.mutable_data<float>(),
               call.square.mutable_data<float>());
}

REGISTER_KERNEL(lars_step, cuda, "simple", {.run = lars_step_cuda, .workspace = norms_bytes<LarsStep>});
REGISTER_KERNEL(lamb_step, cuda, "simple", {.run = lamb_step_cuda, .workspace = norms_bytes<LambStep>});

}  // namespace
}  // namespace hs
