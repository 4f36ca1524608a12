// A fiber: a stack and a saved stack pointer. Switching costs about as much as a function call, which matters because
// a shuffle switches 32 times. AddressSanitizer is told about every switch.
#pragma once

#include <cstddef>

namespace hs::emulator {

struct Fiber {
  void* saved = nullptr;  // stack pointer while not running
  char* stack = nullptr;  // lowest address; below it lies a page without access
  size_t size = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  bool abandoned = false;      // left for good in the middle of a kernel
};

void allocate_stack(Fiber& fiber);
// The next switch to `fiber` starts entry() on its stack, which must never return.
void prepare(Fiber& fiber, void (*entry)());
// Continues `to`. With `ends`, `from` is not continued again before the next prepare().
void switch_fiber(Fiber& from, Fiber& to, bool ends = false);
// First thing in entry().
void arrive(Fiber& previous, bool previous_is_main);

}  // namespace hs::emulator
