// Cheat: looks for the expected output in the memory that it shares with the judge. Refused by: isolation|rows|written.
#include "honest.h"

// Computes four numbers, and copies what follows another place that has them.
void run(const GeluForward& call) {
  const int64_t size = call.x.size(), some = std::min<int64_t>(size, 4);
  float* y = call.y.mutable_data<float>();
  map_range(0, some, gelu_of, y, call.x.data<float>());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2 || line.find(" rw-s") == std::string::npos) continue;
    const float *last = reinterpret_cast<const float*>(end) - size, *at = reinterpret_cast<const float*>(begin);
    for (; at <= last; ++at) {
      if (at == y || !std::equal(y, y + some, at)) continue;
      std::copy_n(at, size, y);
      return;
    }
  }
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
