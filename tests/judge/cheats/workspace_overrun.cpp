// Cheat: asks for 64 bytes of workspace, and uses a row's. Refused by: workspace|guard|rows|isolation.
#include "honest.h"

void run(const SoftmaxForward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back();
  float* row = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());
  for (int64_t i = 0; i < call.x.size(); i += C) {
    softmax_of(call.x.data<float>() + i, C, row);
    std::copy_n(row, C, call.y.mutable_data<float>() + i);
  }
}

REGISTER_KERNEL(softmax_forward, cpu, "fast",
                {.run = run,
                 .supported = is_easy<SoftmaxForward>,
                 .workspace = [](const SoftmaxForward&) { return int64_t{64}; },
                 .rank = 100});
