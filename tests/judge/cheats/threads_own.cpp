// Cheat: works on threads of its own; the judge counts those of the team. Refused by: allocation|threads.
#include <vector>

#include "honest.h"

// They have ended when run() returns.
void run(const GeluForward& call) {
  const float* x = call.x.data<float>();
  float* y = call.y.mutable_data<float>();
  const int64_t size = call.x.size(), count = 16;
  std::vector<std::thread> workers;
  for (int64_t i = 0; i < count; ++i) {
    workers.emplace_back([=] { map_range(i * size / count, (i + 1) * size / count, gelu_of, y, x); });
  }
  for (std::thread& worker : workers) worker.join();
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
