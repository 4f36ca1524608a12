// What a process may still do that runs a plug-in which is judged: compute, with threads of its own, and read files. It
// cannot write files, open connections, start programs, or look into other processes.
#pragma once

#include <cstdint>

namespace hs::bench::judge {

inline constexpr int64_t most_printed = 1 << 20;  // bytes, which stay in memory

// Confines this process for good, before it loads the plug-in: no capabilities, at most `memory` bytes of address space
// beside what it has now and `most_printed` in a file, and a filter of system calls (seccomp). A call that the filter
// refuses ends the process, after a line on stdout that names it: "system call 41". catches_faults: it may handle bad
// accesses to memory, as the emulator of CUDA does. Throws Error (device) if the system has no such filter: then
// nothing can be judged.
void confine(uint64_t memory, bool catches_faults);

}  // namespace hs::bench::judge
