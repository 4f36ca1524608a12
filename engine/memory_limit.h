// The memory of this machine, as far as this process may use it. In engine/parallel.cpp, beside the quota of CPU time,
// which is read from the same control groups.
#pragma once

#include <cstdint>

namespace hs {

// Bytes: the machine's, or the least limit of the control groups below `root` ("/": this system's) if that is less.
int64_t memory_limit(const char* root = "/");

}  // namespace hs
