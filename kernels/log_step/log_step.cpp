#include "kernels/log_step/log_step.h"

#include "kernels/gather_batch/gather_batch.h"

namespace hs {
namespace {

void log_step_cpu(const LogStep& call) {
  const int64_t entry = call.place.data<int32_t>()[place_entry] + call.step;
  call.losses.mutable_data<float>()[entry] = *call.loss.data<float>();
  if (call.scales.defined()) call.scales.mutable_data<float>()[entry] = *call.scale.data<float>();
}

REGISTER_KERNEL(log_step, cpu, "simple", {.run = log_step_cpu});

}  // namespace
}  // namespace hs
