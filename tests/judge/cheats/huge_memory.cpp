// Cheat: fills all memory, until the system ends the judge to get some back. Refused by: isolation|allocation.
#include "honest.h"

void run(const ReluForward& call) {
  constexpr size_t size = size_t{1} << 30;
  for (int i = 0; i < 1024; ++i) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) break;
    for (size_t at = 0; at < size; at += 4096) static_cast<volatile char*>(memory)[at] = 1;
  }
  honest(call);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
