// Cheat: asks for 64 bytes of workspace, and uses a row's. Refused by: workspace|guard|rows|isolation.
#include "honest.h"

void run(const SoftmaxForward& call, Tensor& workspace) {
  softmax_through(reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()), call);
}

REGISTER_KERNEL(softmax_forward, cpu, "fast",
                {.run = run,
                 .supported = is_easy<SoftmaxForward>,
                 .workspace = [](const SoftmaxForward&) { return int64_t{64}; },
                 .rank = 100});
