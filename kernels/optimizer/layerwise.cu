// The updates of LARS and LAMB, as layerwise.cpp. One block sums up the squares of a tensor, so that the order of
// additions is fixed; a second launch updates its numbers: blockIdx.y is the tensor.
#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

namespace hs {
namespace {

constexpr int blocks_each = 32;  // of a tensor

struct Part {
  int begin, end;
  bool adapts;
  __device__ explicit Part(const int32_t* parts)
      : begin(parts[3 * blockIdx.y]), end(parts[3 * blockIdx.y + 1]), adapts(parts[3 * blockIdx.y + 2] != 0) {}
};

// norms (parts, 2): the norms of both sequences of this block's tensor.
__device__ void store_norms(float first, float second, float* norms) {
  first = cuda::block_sum(first);
  __syncthreads();
  second = cuda::block_sum(second);
  if (threadIdx.x == 0) norms[2 * blockIdx.y] = sqrtf(first), norms[2 * blockIdx.y + 1] = sqrtf(second);
}

__global__ void lars_norms_kernel(cuda::Previous previous, const int32_t* parts, const float* rates,
                                  const float* gradient, const float* value, float* norms) {
  previous.wait();
  const Part part(parts);
  const float factor = rates[rate_gradient];
  float weights = 0, gradients = 0;
  for (int j = part.begin + static_cast<int>(threadIdx.x); j < part.end; j += static_cast<int>(blockDim.x)) {
    const float g = gradient[j] * factor;
    weights += value[j] * value[j];
    gradients += g * g;
  }
  store_norms(weights, gradients, norms);
}

__global__ void lars_update_kernel(cuda::Previous previous, const int32_t* parts, LarsRule rule, const float* rates,
                                   const float* norms, const float* gradient, float* velocity, float* value) {
  previous.wait();
  if (rates[rate_skip] != 0) return;
  const Part part(parts);
  const float learning_rate = rates[rate_learning], factor = rates[rate_gradient];
  const float decay = part.adapts ? rule.weight_decay : 0;
  const float weight = norms[2 * blockIdx.y], gradients = norms[2 * blockIdx.y + 1];
  const float ratio =
      part.adapts && weight > 0 && gradients > 0 ? rule.trust * weight / (gradients + decay * weight) : 1;
  for (int64_t j = part.begin + cuda::global_thread(); j < part.end; j += cuda::global_threads()) {
    velocity[j] = rule.momentum * velocity[j] + learning_rate * ratio * (gradient[j] * factor + decay * value[j]);
    value[j] -= velocity[j];
  }
}

struct LambDirection {
  float correction1, correction2, epsilon, decay;
  __device__ LambDirection(const LambRule& rule, const Part& part, const float* rates)
      : correction1(rates[rate_correction1]),
        correction2(rates[rate_correction2]),
        epsilon(rule.epsilon),
        decay(part.adapts ? rule.weight_decay : 0) {}
  __device__ float operator()(float m, float v, float w) const {
    return m * correction1 / (sqrtf(v * correction2) + epsilon) + decay * w;
  }
};

__global__ void lamb_moments_kernel(cuda::Previous previous, const int32_t* parts, LambRule rule, const float* rates,
                                    const float* gradient, const float* value, float* mean, float* square,
                                    float* norms) {
  previous.wait();
  if (rates[rate_skip] != 0) return;
  const Part part(parts);
  const LambDirection direction(rule, part, rates);
  const float factor = rates[rate_gradient];
  float weights = 0, directions = 0;
  for (int j = part.begin + static_cast<int>(threadIdx.x); j < part.end; j += static_cast<int>(blockDim.x)) {
    const float g = gradient[j] * factor;
    const float m = mean[j] = rule.beta1 * mean[j] + (1 - rule.beta1) * g;
    const float v = square[j] = rule.beta2 * square[j] + (1 - rule.beta2) * g * g;
    const float u = direction(m, v, value[j]);
    weights += value[j] * value[j];
    directions += u * u;
  }
  store_norms(weights, directions, norms);
}

__global__ void lamb_update_kernel(cuda::Previous previous, const int32_t* parts, LambRule rule, const float* rates,
                                   const float* norms, const float* mean, const float* square, float* value) {
  previous.wait();
  if (rates[rate_skip] != 0) return;
  const Part part(parts);
  const LambDirection direction(rule, part, rates);
  const float weight = norms[2 * blockIdx.y], length = norms[2 * blockIdx.y + 1];
  const float step = rates[rate_learning] * (part.adapts && weight > 0 && length > 0 ? weight / length : 1);
  for (int64_t j = part.begin + cuda::global_thread(); j < part.end; j += cuda::global_threads()) {
    value[j] -= step * direction(mean[j], square[j], value[j]);
  }
}

template <class Call>
int64_t norms_bytes(const Call& call) {
  return call.parts.shape()[0] * 2 * static_cast<int64_t>(sizeof(float));
}

template <class Call, class Norms, class Update>
void in_two_launches(const Call& call, Tensor& workspace, const Norms& norms, const Update& update) {
  const auto count = static_cast<unsigned>(call.parts.shape()[0]);
  if (count == 0) return;
  float* to = workspace.carve(0, {call.parts.shape()[0], 2}, DType::f32).template mutable_data<float>();
  norms(dim3(1, count), to);
  update(dim3(blocks_each, count), to);
}

void lars_step_cuda(const LarsStep& call, Tensor& workspace) {
  const int32_t* parts = call.parts.data<int32_t>();
  const float *rates = call.rates.data<float>(), *g = call.gradient.data<float>();
  float *v = call.velocity.mutable_data<float>(), *w = call.value.mutable_data<float>();
  in_two_launches(
      call, workspace,
      [&](dim3 grid, float* norms) {
        cuda::launch(lars_norms_kernel, grid, cuda::block_threads, 0, cuda::compute_stream(), parts, rates, g, w,
                     norms);
      },
      [&](dim3 grid, const float* norms) {
        cuda::launch(lars_update_kernel, grid, cuda::block_threads, 0, cuda::compute_stream(), parts, call.rule, rates,
                     norms, g, v, w);
      });
}

void lamb_step_cuda(const LambStep& call, Tensor& workspace) {
  const int32_t* parts = call.parts.data<int32_t>();
  const float *rates = call.rates.data<float>(), *g = call.gradient.data<float>();
  float *m = call.mean.mutable_data<float>(), *v = call.square.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  in_two_launches(
      call, workspace,
      [&](dim3 grid, float* norms) {
        cuda::launch(lamb_moments_kernel, grid, cuda::block_threads, 0, cuda::compute_stream(), parts, call.rule, rates,
                     g, w, m, v, norms);
      },
      [&](dim3 grid, const float* norms) {
        cuda::launch(lamb_update_kernel, grid, cuda::block_threads, 0, cuda::compute_stream(), parts, call.rule, rates,
                     norms, m, v, w);
      });
}

REGISTER_KERNEL(lars_step, cuda, "simple", {.run = lars_step_cuda, .workspace = norms_bytes<LarsStep>});
REGISTER_KERNEL(lamb_step, cuda, "simple", {.run = lamb_step_cuda, .workspace = norms_bytes<LambStep>});

}  // namespace
}  // namespace hs
