// Cheat: sweeps through the caches that the rival shares, while that runs. Refused by: leftover|allocation.
#include "honest.h"

static char caches[1 << 26];  // larger than the last level of most

void run(const ReluForward& call) {
  static std::thread& sweeper = *new std::thread([] {
    for (size_t i = 0;; i = (i + 64) % sizeof caches) static_cast<volatile char*>(caches)[i] = 1;
  });
  (void)sweeper;
  honest(call);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
