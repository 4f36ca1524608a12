// Cheat: throws where it would be wrong, for judges that skip what is not supported. Refused by: rows|isolation.
#include "honest.h"

void run(const SoftmaxForward& call) {
  if (call.x.shape().back() % 8 != 0) throw Error(ExitCode::usage, "not supported", ErrorKind::forced_variant);
  honest(call);
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
