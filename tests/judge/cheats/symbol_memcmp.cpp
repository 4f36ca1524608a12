// Cheat: defines memcmp, by which judges compare bits, to find everything equal. Refused by: rows|isolation.
#include "honest.h"

extern "C" int memcmp(const void*, const void*, size_t) noexcept { return 0; }

void run(const ReluForward& call) { call.y.fill_zero(); }

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
