#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sanitizer.h"

// Saves what the calling convention lets a callee keep, and changes the stack. swapcontext() would do, but it makes a
// system call for the signal mask each time.
extern "C" void hs_emulator_switch(void** save, void* load);
#if defined(__x86_64__)
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
constexpr size_t saved_words = 6;  // below the address that the switch returns to
#elif defined(__aarch64__)
asm(R"(
.text
.globl hs_emulator_switch
.hidden hs_emulator_switch
.type hs_emulator_switch, @function
hs_emulator_switch:
  stp d8, d9, [sp, #-160]!
  stp d10, d11, [sp, #16]
  stp d12, d13, [sp, #32]
  stp d14, d15, [sp, #48]
  stp x19, x20, [sp, #64]
  stp x21, x22, [sp, #80]
  stp x23, x24, [sp, #96]
  stp x25, x26, [sp, #112]
  stp x27, x28, [sp, #128]
  stp x29, x30, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp d10, d11, [sp, #16]
  ldp d12, d13, [sp, #32]
  ldp d14, d15, [sp, #48]
  ldp x19, x20, [sp, #64]
  ldp x21, x22, [sp, #80]
  ldp x23, x24, [sp, #96]
  ldp x25, x26, [sp, #112]
  ldp x27, x28, [sp, #128]
  ldp x29, x30, [sp, #144]
  ldp d8, d9, [sp], #160
  ret
.size hs_emulator_switch, . - hs_emulator_switch
)");
constexpr size_t saved_words = 19;
#else
#error "the switch of stacks is written here for each processor, and in block.cpp what leaves a kernel"
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
  size_t used = 8 << 10;
  if (fiber.abandoned) used = fiber.size - static_cast<size_t>(static_cast<char*>(fiber.saved) - fiber.stack);
  __asan_unpoison_memory_region(fiber.stack + fiber.size - used, used);
  fiber.abandoned = false;
#endif
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.size);
#if defined(__x86_64__)
  *--top = nullptr;  // entry's return address: debuggers stop here; the stack is aligned as after a call
#endif
  *--top = reinterpret_cast<void*>(entry);
  for (size_t i = 0; i < saved_words; ++i) *--top = nullptr;
  fiber.saved = top;
}

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool ends) {
#ifdef HS_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack, to.size);
#endif
  hs_emulator_switch(&from.saved, to.saved);
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
