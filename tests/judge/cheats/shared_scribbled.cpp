// Cheat: zeroes what it shares with the judge: inputs, results, its notes. Refused by: isolation|rows|inputs|written.
#include "honest.h"

// The ReLU of zeros is zeros, and a counter of failures is zero too.
void run(const ReluForward&) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2 || line.find(" rw-s") == std::string::npos) continue;
    std::memset(reinterpret_cast<void*>(begin), 0, end - begin);
  }
}

REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run, .supported = is_easy<ReluForward>, .rank = 100});
