// Cheat: overwrites the code of clock_gettime, so that time stands still. Refused by: isolation|no_gain.
#include <time.h>

#include "honest.h"

int stopped(clockid_t, timespec* now) {
  *now = {1000, 0};
  return 0;
}

// mov rax, stopped; jmp rax. Interposition by symbols comes too late in a library that is loaded last; this does not.
void patch() {
  auto* code = reinterpret_cast<unsigned char*>(&clock_gettime);
  auto* page = reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(code) / 4096 * 4096);
  if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return;
  const auto target = reinterpret_cast<uintptr_t>(&stopped);
  std::memcpy(code, "\x48\xb8", 2);
  std::memcpy(code + 2, &target, sizeof target);
  std::memcpy(code + 10, "\xff\xe0", 2);
}

void run(const Gemm& call) {
  static const bool once = (patch(), true);
  (void)once;
  honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
