// Reading a mapped page that the file no longer has raises SIGBUS. Calling fstat() before every read would leave a gap
// in which the file can shrink, so the signal is caught: a thread registers the bytes that it is about to read, and the
// handler jumps back to it if the fault is among them. Only memcpy runs in that state, so the jump leaves nothing half
// done.
#include "data/io/bus_error_guard.h"

#include <ucontext.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

namespace hs {
namespace {

struct Guard {
  const uint8_t* begin;
  const uint8_t* end;
  sigjmp_buf back;
};
thread_local Guard* active_guard = nullptr;
struct sigaction previous_action;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const Guard* guard = active_guard;
  const auto* address = static_cast<const uint8_t*>(info->si_addr);
  const bool from_memory = info->si_code > 0;  // and not sent by a process
  if (guard != nullptr && from_memory && address >= guard->begin && address < guard->end) {
    // The jump leaves the handler for good: the signals that it blocked must not stay blocked. (sigsetjmp could save
    // them, but with a system call for each read.)
    pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(active_guard->back, 1);
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) return previous_action.sa_sigaction(signal, info, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    return previous_action.sa_handler(signal);
  }
  // Ends the program, as without a handler, when this one returns and the signal is no longer blocked.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void install_bus_error_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  });
}

bool copy_guarded(uint8_t* to, const uint8_t* from, size_t size) {
  Guard guard;
  guard.begin = from;
  guard.end = from + size;
  if (sigsetjmp(guard.back, 0) != 0) {
    active_guard = nullptr;
    return false;
  }
  active_guard = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(to, from, size);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  active_guard = nullptr;
  return true;
}

}  // namespace hs
