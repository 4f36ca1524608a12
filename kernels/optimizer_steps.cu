// The fused updates that engine/optim.h declares: one pass over the parameter arena. The arithmetic is that of
// optimizer_steps.cpp, operation by operation, so that both devices give the same bits.
#include <cuda_runtime.h>

#include "engine/optim.h"
#include "kernels/cuda.cuh"

namespace hs {
namespace {

__global__ void begin_step_kernel(double beta1, double beta2, int32_t* step, float* rates) {
  const int32_t t = ++*step;
  rates[1] = static_cast<float>(1 / (1 - pow(beta1, static_cast<double>(t))));
  rates[2] = static_cast<float>(1 / (1 - pow(beta2, static_cast<double>(t))));
}

void begin_step_cuda(float beta1, float beta2, Tensor& step, Tensor& rates) {
  cuda::launch(begin_step_kernel, 1, 1, 0, cuda::compute_stream(), static_cast<double>(beta1),
               static_cast<double>(beta2), step.mutable_data<int32_t>(), rates.mutable_data<float>());
}

// update(g, state...) for each element, with what update.begin() makes of the rates. `packs`: how many packs of 4
// elements from the start; the rest goes one by one.
template <class Update, class... State>
__global__ void update_kernel(int64_t size, int64_t packs, Update update, const float* rates, const float* gradient,
                              State*... state) {
  using Pack = cuda::Pack<float, 4>;
  update.begin(rates);
  for (int64_t p = cuda::global_thread(); p < packs; p += cuda::global_threads()) {
    const Pack g = reinterpret_cast<const Pack*>(gradient)[p];
    const auto update_pack = [&](cuda::Pack<State, 4>... s) {
#pragma unroll
      for (int j = 0; j < 4; ++j) update(g.value[j], s.value[j]...);
      ((reinterpret_cast<Pack*>(state)[p] = s), ...);
    };
    update_pack(reinterpret_cast<const Pack*>(state)[p]...);
  }
  for (int64_t i = packs * 4 + cuda::global_thread(); i < size; i += cuda::global_threads()) {
    update(gradient[i], state[i]...);
  }
}

template <class Update, class... State>
void update_all(int64_t size, const Update& update, const Tensor& rates, const Tensor& gradient, State*... state) {
  const float* g = gradient.data<float>();
  const bool aligned = cuda::is_aligned<float, 4>(g) && (cuda::is_aligned<float, 4>(state) && ...);
  const int64_t packs = aligned ? size / 4 : 0;
  cuda::launch(update_kernel<Update, State...>, cuda::blocks_for(aligned ? (size + 3) / 4 : size), cuda::block_threads,
               0, cuda::compute_stream(), size, packs, update, rates.data<float>(), g, state...);
}

struct SgdUpdate {
  SgdRule rule;
  float learning_rate = 0;

  __device__ void begin(const float* rates) { learning_rate = rates[0]; }
  __device__ void operator()(float g, float& v, float& w) const {
    v = rule.momentum * v + (g + rule.weight_decay * w);
    w -= learning_rate * v;
  }
};

void sgd_step_cuda(const Tensor& gradient, const SgdRule& rule, const Tensor& rates, Tensor& velocity, Tensor& value) {
  update_all(value.size(), SgdUpdate{rule}, rates, gradient, velocity.mutable_data<float>(),
             value.mutable_data<float>());
}

struct AdamUpdate {
  AdamRule rule;
  float learning_rate = 0, correction1 = 0, correction2 = 0, into_gradient = 0, shrink = 0;

  __device__ void begin(const float* rates) {
    learning_rate = rates[0];
    correction1 = rates[1];
    correction2 = rates[2];
    into_gradient = rule.decoupled ? 0 : rule.weight_decay;
    shrink = rule.decoupled ? 1 - learning_rate * rule.weight_decay : 1;
  }
  __device__ void operator()(float g, float& m, float& v, float& w) const {
    g += into_gradient * w;
    m = rule.beta1 * m + (1 - rule.beta1) * g;
    v = rule.beta2 * v + (1 - rule.beta2) * g * g;
    w = w * shrink - learning_rate * (m * correction1) / (sqrtf(v * correction2) + rule.epsilon);
  }
};

void adam_step_cuda(const Tensor& gradient, const AdamRule& rule, const Tensor& rates, Tensor& mean, Tensor& square,
                    Tensor& value) {
  update_all(value.size(), AdamUpdate{rule}, rates, gradient, mean.mutable_data<float>(), square.mutable_data<float>(),
             value.mutable_data<float>());
}

REGISTER_KERNEL(begin_step, cuda, "simple", {.run = begin_step_cuda});
REGISTER_KERNEL(sgd_step, cuda, "simple", {.run = sgd_step_cuda});
REGISTER_KERNEL(adam_step, cuda, "simple", {.run = adam_step_cuda});

}  // namespace
}  // namespace hs
