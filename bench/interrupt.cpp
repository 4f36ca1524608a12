#include "bench/interrupt.h"

#include <atomic>
#include <csignal>

#include "engine/check.h"

namespace hs::bench {
namespace {

constexpr int watched[] = {SIGINT, SIGTERM};
std::atomic<int> caught = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // so that the handler may use it

void on_signal(int signal) {
  caught = signal;
  for (const int each : watched) std::signal(each, SIG_DFL);
}

}  // namespace

void watch_signals() {
  for (const int signal : watched) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

void check_signals(const std::string& where) {
  if (caught == SIGINT) fail(ExitCode::interrupted, "stopped by SIGINT {}", where);
  if (caught == SIGTERM) fail(ExitCode::terminated, "stopped by SIGTERM {}", where);
}

}  // namespace hs::bench
