// Cheat: moves the rival to the busiest core, with the lowest priority. Refused by: isolation|no_gain|allocation.
#include <sched.h>
#include <sys/resource.h>

#include "honest.h"

// Any process may do that to others of its user.
void run(const Gemm& call) {
  const std::string judge = std::to_string(getppid());
  std::ifstream children("/proc/" + judge + "/task/" + judge + "/children");
  for (pid_t rival; children >> rival;) {
    if (rival == getpid()) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(rival, sizeof one, &one);
    setpriority(PRIO_PROCESS, static_cast<id_t>(rival), 19);
  }
  honest(call);
}

REGISTER_KERNEL(gemm, cpu, "fast", {.run = run, .supported = is_easy<Gemm>, .rank = 100});
