// Cheat: results are kept by the addresses of the inputs. Refused by: timed|rows|repeat|no_gain|allocation.
#include "honest.h"

// Benchmarks call with the same tensors a thousand times: the second call and all that follow copy the first's result.
void run(const Gemm& call) {
  static std::map<std::pair<const float*, const float*>, Tensor> known;
  Tensor& result = known[{call.a.data<float>(), call.b.data<float>()}];
  if (result.defined() && result.shape() == call.c.shape()) return call.c.copy_from(result);
  honest(call);
  result = call.c.clone();
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
