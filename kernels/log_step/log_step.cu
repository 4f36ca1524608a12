#include "kernels/log_step/log_step.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"
#include "kernels/gather_batch/gather_batch.h"

namespace hs {
namespace {

__global__ void log_step_kernel(const float* loss, const float* scale, const int32_t* place, int64_t step,
                                float* losses, float* scales) {
  const int64_t entry = place[place_entry] + step;
  losses[entry] = *loss;
  if (scales) scales[entry] = *scale;
}

void log_step_cuda(const LogStep& call) {
  const bool scaled = call.scales.defined();
  cuda::launch(log_step_kernel, 1, 1, 0, cuda::compute_stream(), call.loss.data<float>(),
               scaled ? call.scale.data<float>() : nullptr, call.place.data<int32_t>(), call.step,
               call.losses.mutable_data<float>(), scaled ? call.scales.mutable_data<float>() : nullptr);
}

REGISTER_KERNEL(log_step, cuda, "simple", {.run = log_step_cuda});

}  // namespace
}  // namespace hs
