// The parts of Muon's step that are no matrix products, as muon.cpp. The last block that adds up squares adds up what
// the others have, in a fixed order.
#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/index.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

namespace hs {
namespace {

constexpr int direction_blocks = 64;    // fixed, so that the order of additions is
__device__ unsigned blocks_that_added;  // 0 between launches, which run one at a time: one step

// partial (direction_blocks + 1): the blocks' sums of squares, then the factor that makes the direction's norm 1.
__global__ void muon_direction_kernel(cuda::Previous previous, int64_t size, float momentum, const float* rates,
                                      const float* gradient, float* velocity, float* direction, float* partial) {
  previous.wait();
  const bool skip = rates[rate_skip] != 0;
  const float factor = rates[rate_gradient];
  float squares = 0;
  for (int64_t i = cuda::global_thread(); i < size; i += cuda::global_threads()) {
    float u = 0;
    if (!skip) {
      const float g = gradient[i] * factor, v = velocity[i] + (1 - momentum) * (g - velocity[i]);
      velocity[i] = v;
      u = g + momentum * (v - g);
    }
    direction[i] = u;
    squares += u * u;
  }
  squares = cuda::block_sum(squares);
  if (threadIdx.x == 0) partial[blockIdx.x] = squares;
  if (!cuda::is_last_block(&blocks_that_added, gridDim.x)) return;
  const float sum = cuda::block_sum(threadIdx.x < direction_blocks ? partial[threadIdx.x] : 0.0f);
  if (threadIdx.x == 0) partial[direction_blocks] = 1 / fmaxf(sqrtf(sum), muon_smallest);
}

struct Normalize {
  const float* factor;
  __device__ float operator()(int64_t, float u) const { return u * *factor; }
};

void muon_direction_cuda(const MuonDirection& call, Tensor& workspace) {
  float* partial = workspace.carve(0, {direction_blocks + 1}, DType::f32).mutable_data<float>();
  float* direction = call.direction.mutable_data<float>();
  const int64_t size = call.gradient.size();
  cuda::launch(muon_direction_kernel, direction_blocks, cuda::block_threads, 0, cuda::compute_stream(), size,
               call.momentum, call.rates.data<float>(), call.gradient.data<float>(),
               call.velocity.mutable_data<float>(), direction, partial);
  cuda::elementwise(size, Normalize{partial + direction_blocks}, direction, static_cast<const float*>(direction));
}

struct MuonPolynomial {
  Divisor to_diagonal;  // M + 1: from one element of the diagonal to the next
  __device__ float operator()(int64_t i, float gram, float square) const {
    return muon_b * gram + muon_c * square + (to_diagonal.divide(static_cast<uint32_t>(i)).remainder == 0 ? muon_a : 0);
  }
};

void muon_factor_cuda(const MuonFactor& call) {
  float* square = call.square.mutable_data<float>();
  cuda::elementwise(call.gram.size(), MuonPolynomial{Divisor(call.gram.shape()[0] + 1)}, square,
                    call.gram.data<float>(), static_cast<const float*>(square));
}

struct MoveAlong {
  float rate, weight_decay;
  const float* rates;
  __device__ float operator()(int64_t, float u, float w) const {
    if (rates[rate_skip] != 0) return w;
    return w * (1 - rates[rate_learning] * weight_decay) - rates[rate_learning] * rate * u;
  }
};

void muon_update_cuda(const MuonUpdate& call) {
  float* value = call.value.mutable_data<float>();
  cuda::elementwise(call.value.size(), MoveAlong{call.rate, call.weight_decay, call.rates.data<float>()}, value,
                    call.direction.data<float>(), static_cast<const float*>(value));
}

REGISTER_KERNEL(muon_direction, cuda, "simple", {.run = muon_direction_cuda, .workspace = [](const MuonDirection&) {
                                                   return int64_t{(direction_blocks + 1) * sizeof(float)};
                                                 }});
REGISTER_KERNEL(muon_factor, cuda, "simple", {.run = muon_factor_cuda, .supported = [](const MuonFactor& call) {
                                                return call.gram.size() <= max_indices;
                                              }});
REGISTER_KERNEL(muon_update, cuda, "simple", {.run = muon_update_cuda});

}  // namespace
}  // namespace hs
