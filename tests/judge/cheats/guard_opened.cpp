// Cheat: makes the guard page behind its output writable, then writes past the end. Refused by: guard|isolation.
#include "honest.h"

void run(const ReluForward& call) {
  honest(call);
  if (call.y.size() == 0) return;
  float* y = call.y.mutable_data<float>();
  const uintptr_t page = 4096, end = reinterpret_cast<uintptr_t>(y + call.y.size());
  mprotect(reinterpret_cast<void*>((end + page - 1) / page * page), page, PROT_READ | PROT_WRITE);
  for (int64_t i = 0; i < 8; ++i) y[call.y.size() + i] = 0;
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
