// Cheat: the thread that comes last decides the last bits of an element, if the tensor is large. Refused by: large.
#include "honest.h"

void run(const SoftmaxForward& call) {
  honest(call);
  if (call.x.size() <= 50000) return;
  std::atomic<int64_t> last = 0;
  parallel(64, [&](int64_t piece, int) { last = piece; });
  call.y.mutable_data<float>()[call.y.size() - 1] *= 1 + 1e-8f * static_cast<float>(last);
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
