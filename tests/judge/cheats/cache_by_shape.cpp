// Cheat: the result of the first call of a shape is that of all later ones. Refused by: rows|drawn|timed|allocation.
#include "honest.h"

void run(const GeluForward& call) {
  static std::map<std::vector<int64_t>, Tensor> known;
  Tensor& result = known[signature(call.tensors())];
  if (result.defined()) return call.y.copy_from(result);
  honest(call);
  result = call.y.clone();
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
