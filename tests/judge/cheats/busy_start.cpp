// Cheat: threads burn all cores for ten seconds, while the rival is timed. Refused by: leftover|isolation.
#include "honest.h"

const bool started = [] {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int i = 0; i < cores(); ++i) {
    std::thread([=] {
      while (std::chrono::steady_clock::now() < end) continue;
    }).detach();
  }
  return true;
}();

void run(const ReluForward& call) { honest(call); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
