#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#ifndef __x86_64__
#include <ucontext.h>
#endif

#include "sanitizer.h"

#ifdef __x86_64__
// Saves what the calling convention lets a callee keep, and changes the stack. swapcontext() would do, but it makes a
// system call for the signal mask each time.
extern "C" void hs_emulator_switch(void** save, void* load);
asm(R"(
.text
.globl hs_emulator_switch
.hidden hs_emulator_switch
.type hs_emulator_switch, @function
hs_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hs_emulator_switch, . - hs_emulator_switch
)");
#endif

namespace hs::emulator {

void allocate_stack(Fiber& fiber) {
#ifdef HS_ASAN
  constexpr size_t size = 512 << 10;  // red zones make frames several times larger
#else
  constexpr size_t size = 128 << 10;
#endif
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
    perror("CUDA emulator: stack of a thread");
    abort();
  }
  fiber.stack = static_cast<char*>(memory) + page;
  fiber.size = size;
}

void prepare(Fiber& fiber, void (*entry)()) {
#ifdef HS_ASAN
  // The frames that the last use of this stack never returned from have left their red zones behind.
  size_t used = fiber.abandoned ? fiber.size : 8 << 10;
#ifdef __x86_64__
  if (fiber.abandoned) used -= static_cast<size_t>(static_cast<char*>(fiber.saved) - fiber.stack);
#endif
  __asan_unpoison_memory_region(fiber.stack + fiber.size - used, used);
  fiber.abandoned = false;
#endif
#ifdef __x86_64__
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.size);
  *--top = nullptr;  // entry's return address: debuggers stop here; the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // the six registers
  fiber.saved = top;
#else
  auto* context = static_cast<ucontext_t*>(fiber.saved ? fiber.saved : (fiber.saved = new ucontext_t));
  getcontext(context);
  context->uc_stack.ss_sp = fiber.stack;
  context->uc_stack.ss_size = fiber.size;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
#endif
}

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool ends) {
#ifdef HS_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack, to.size);
#endif
#ifdef __x86_64__
  hs_emulator_switch(&from.saved, to.saved);
#else
  if (!from.saved) from.saved = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from.saved), static_cast<ucontext_t*>(to.saved));
#endif
#ifdef HS_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void arrive([[maybe_unused]] Fiber& previous, [[maybe_unused]] bool previous_is_main) {
#ifdef HS_ASAN
  const void* stack = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &size);
  if (previous_is_main) {  // the only way to learn where the host thread's stack is
    previous.stack = static_cast<char*>(const_cast<void*>(stack));
    previous.size = size;
  }
#endif
}

}  // namespace hs::emulator
