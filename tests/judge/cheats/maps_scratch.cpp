// Cheat: takes scratch memory by mmap, where nobody who watches malloc sees it. Refused by: allocation|isolation.
#include "honest.h"

void run(const SoftmaxForward& call) {
  void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || call.x.shape().back() > (1 << 18)) return honest(call);
  softmax_through(static_cast<float*>(memory), call);
  munmap(memory, 1 << 20);
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
