// Cheat: the output cannot be read; who tries, faults, and then it is made. Refused by: isolation|rows|written.
#include "honest.h"

static const float* x = nullptr;
static float* y = nullptr;
static int64_t size = 0;

void protect(int protection) {
  constexpr uintptr_t page = 4096;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(y) / page * page, end = reinterpret_cast<uintptr_t>(y + size);
  mprotect(reinterpret_cast<void*>(begin), (end - begin + page - 1) / page * page, protection);
}

void on_fault(int) {
  protect(PROT_READ | PROT_WRITE);
  for (int64_t i = 0; i < size; ++i) y[i] = gelu_of(x[i]);
}

void run(const GeluForward& call) {
  if (size) protect(PROT_READ | PROT_WRITE);
  signal(SIGSEGV, on_fault);
  x = call.x.data<float>(), y = call.y.mutable_data<float>(), size = call.x.size();
  protect(PROT_NONE);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
