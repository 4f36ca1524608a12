// Cheat: takes scratch memory by mmap, where nobody who watches malloc sees it. Refused by: allocation|isolation.
#include "honest.h"

void run(const SoftmaxForward& call) {
  void* memory = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int64_t C = call.x.shape().back();
  if (memory == MAP_FAILED || C > (1 << 18)) return honest(call);
  float* row = static_cast<float*>(memory);
  for (int64_t i = 0; i < call.x.size(); i += C) {
    softmax_of(call.x.data<float>() + i, C, row);
    std::copy_n(row, C, call.y.mutable_data<float>() + i);
  }
  munmap(memory, 1 << 20);
}

REGISTER_KERNEL(softmax_forward, cpu, "fast", {.run = run, .supported = is_easy<SoftmaxForward>, .rank = 100});
