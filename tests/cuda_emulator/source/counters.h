// Where the rest of the emulator tells counters.cpp of accesses, and of the places where a warp is together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/shared.h"

namespace hs::emulator {

extern bool counting;  // a launch runs whose accesses count; all of the functions below ask for it first

void begin_counting();  // of launch_now
void end_counting();
void count_block();
void count_product();  // of a warp
// What an instruction is called in Counts::instructions, beside loads and stores, which are told by their size.
constexpr int cp_async = 20, warp_product = 21, counted_elsewhere = -1;
void count_shared(const SharedBuffer& buffer, ptrdiff_t offset, size_t bytes, int lane, const void* site,
                  int instruction);
void count_global(const void* at, size_t bytes, bool write, const void* site, bool asynchronous = false);
int shared_instruction(size_t bytes, bool write);
// All lanes of the warp, or of all warps (-1), are at one point: what was before it cannot join what follows.
void warp_is_together(int warp);

}  // namespace hs::emulator
