// Cheat: prints until no report of its mistakes can be written. Refused by: isolation.
#include <array>

#include "honest.h"

void run(const ReluForward& call) {
  static const std::array<char, 1 << 16> text{};
  honest(call);
  for (int i = 0; i < 64; ++i) std::fwrite(text.data(), 1, text.size(), stdout);
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
