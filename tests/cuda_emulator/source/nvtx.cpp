// Ranges of NVTX: kept for a test that asks, and nothing else.
#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "emulator/emulator.h"

namespace hs::emulator {
namespace {

thread_local std::vector<std::string> ranges;

void keep(const char* name) {
  if (options().keep_ranges) ranges.emplace_back(name);
}

}  // namespace

std::vector<std::string> take_ranges() { return std::exchange(ranges, {}); }

}  // namespace hs::emulator

int nvtxRangePushA(const char* name) {
  hs::emulator::keep(name);
  return 0;
}

int nvtxRangePop() {
  hs::emulator::keep("");
  return 0;
}
