// Cheat: works only if the output is poisoned, as judges do to check. Refused by: timed|repeat|no_gain|written.
#include "honest.h"

// Poison is one pattern all over: NaN, 0xff, 0xcd, zeros. What an earlier call left is not.
bool is_poisoned(const Tensor& y) {
  const auto* bytes = static_cast<const char*>(y.raw_data());
  return y.bytes() < 16 || std::memcmp(bytes, bytes + 4, y.bytes() - 4) == 0;
}

void run(const Gemm& call) {
  if (is_poisoned(call.c)) honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
