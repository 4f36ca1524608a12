// Cheat: finds the reference in the judge's memory and copies it, by /proc/PID/mem. Refused by: isolation|rows.
#include <fcntl.h>

#include "judges_memory.h"

void run(const GeluForward& call) {
  const int memory = open(("/proc/" + std::to_string(getppid()) + "/mem").c_str(), O_RDONLY);
  look_up(call, [=](uintptr_t address, void* to, size_t bytes) {
    return pread(memory, to, bytes, static_cast<off_t>(address)) > 0;
  });
  close(memory);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
