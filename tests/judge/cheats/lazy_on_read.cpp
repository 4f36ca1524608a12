// Cheat: the output cannot be read; who tries, faults, and then it is made. Refused by: isolation|rows|written.
#include "honest.h"

static Later last;

void protect(int protection) {
  constexpr uintptr_t page = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(last.y) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(last.y + last.size);
  mprotect(reinterpret_cast<void*>(begin), (end - begin + page - 1) / page * page, protection);
}

void on_fault(int) {
  protect(PROT_READ | PROT_WRITE);
  last.compute();
}

void run(const GeluForward& call) {
  if (last.size) protect(PROT_READ | PROT_WRITE);
  signal(SIGSEGV, on_fault);
  last = Later(call);
  protect(PROT_NONE);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
