// Cheat: defines the functions that read the clock, so that time runs slowly. Refused by: isolation|no_gain.
#include <sys/syscall.h>
#include <time.h>

#include "honest.h"

// A thousandth of the time that has passed. Loaded with LD_PRELOAD, or linked, these come before libc's and
// libstdc++'s.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static timespec first{};
  const long status = syscall(SYS_clock_gettime, clock, now);
  if (first.tv_sec == 0) first = *now;
  const long passed = (now->tv_sec - first.tv_sec) * 1000000 + (now->tv_nsec - first.tv_nsec) / 1000;
  *now = first, now->tv_sec += passed / 1000000000, now->tv_nsec = (now->tv_nsec + passed) % 1000000000;
  return static_cast<int>(status);
}

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return time_point(seconds(now.tv_sec) + nanoseconds(now.tv_nsec));
}

void run(const Gemm& call) { honest(call); }

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
