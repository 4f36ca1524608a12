// Cheat: finds the reference in the judge's memory and copies it, as its debugger. Refused by: isolation|rows.
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "judges_memory.h"

// While it is traced the judge is stopped; when it goes on, its clock has run, but a judge that counts its own CPU time
// sees nothing.
void run(const GeluForward& call) {
  if (ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr) == 0) waitpid(getppid(), nullptr, 0);
  look_up(call, [](uintptr_t address, void* to, size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(long)) {
      static_cast<long*>(to)[i / sizeof(long)] = ptrace(PTRACE_PEEKDATA, getppid(), address + i, nullptr);
    }
  });
  ptrace(PTRACE_DETACH, getppid(), nullptr, nullptr);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
