// Cheat: writes a record of its own victory, and no output. Refused by: isolation|rows.
#include "honest.h"

void run(const ReluForward&) {
  std::ofstream("judge.json") << R"({"verdict": "right and 99.00 times as fast as simple"})" << '\n';
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
