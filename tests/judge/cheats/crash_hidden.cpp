// Cheat: jumps out of the handler of the crash that it causes past the end. Refused by: guard|isolation.
#include <setjmp.h>

#include "honest.h"

static sigjmp_buf past;

void run(const ReluForward& call) {
  honest(call);
  if (call.y.size() == 0) return;
  signal(SIGSEGV, [](int) { siglongjmp(past, 1); });
  signal(SIGBUS, [](int) { siglongjmp(past, 1); });
  if (sigsetjmp(past, 1) != 0) return;
  volatile float* end = call.y.mutable_data<float>() + call.y.size();
  for (int i = 0; i < 8; ++i) end[i] = 0;
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
