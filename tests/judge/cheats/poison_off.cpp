// Cheat: switches the poison of new tensors off, to find old results in them. Refused by: rows|written.
#include "honest.h"

const bool off = (set_poison(false), true);

void run(const GeluForward&) {}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
