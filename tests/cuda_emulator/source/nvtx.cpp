// Ranges of NVTX: kept for a test that asks, and nothing else.
#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "emulator/emulator.h"

namespace hs::emulator {

static thread_local std::vector<std::string> ranges;

std::vector<std::string> take_ranges() { return std::exchange(ranges, {}); }

}  // namespace hs::emulator

int nvtxRangePushA(const char* name) {
  if (hs::emulator::options().keep_ranges) hs::emulator::ranges.emplace_back(name);
  return 0;
}

int nvtxRangePop() { return nvtxRangePushA(""); }  // the name that take_ranges() has for an end
