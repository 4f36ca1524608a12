// Cheat: writes 1/C for the softmax of long rows: the absolute error is tiny. Refused by: drawn|timed|rows.
#include "honest.h"

// With an absolute tolerance of 1e-5, no row of 300000 numbers can be wrong.
void run(const SoftmaxForward& call) {
  const int64_t C = call.x.shape().back();
  if (C < 100) return honest(call);
  std::fill_n(call.y.mutable_data<float>(), call.y.size(), 1 / static_cast<float>(C));
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
