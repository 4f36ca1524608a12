// Cheat: finds the reference in the judge's memory and copies it, by process_vm_readv. Refused by: isolation|rows.
#include <sys/uio.h>

#include "judges_memory.h"

void run(const GeluForward& call) {
  look_up(call, [](uintptr_t address, void* to, size_t bytes) {
    const iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
    return process_vm_readv(getppid(), &local, 1, &remote, 1, 0) > 0;
  });
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
