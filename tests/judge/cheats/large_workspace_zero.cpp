// Cheat: adds to a workspace that it takes for zeros, if the tensor is large. Refused by: large.
#include "honest.h"

void run(const GeluForward& call, Tensor& workspace) {
  honest(call);
  if (call.x.size() <= 50000) return;
  const float* zero = reinterpret_cast<const float*>(workspace.mutable_data<uint8_t>());
  call.y.mutable_data<float>()[call.y.size() / 2] += *zero;
}

REGISTER_KERNEL(gelu_forward, cpu, "fast",
                {.run = run,
                 .supported = is_easy<GeluForward>,
                 .workspace = [](const GeluForward&) { return int64_t{64}; },
                 .rank = 100});
