#include "bench/cli/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "bench/cli/build_info.h"
#include "bench/cli/console.h"
#include "engine/check.h"
#include "engine/files/temporary_path.h"
#include "engine/observe.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HALFSTEP_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HALFSTEP_SANITIZED
#endif
#endif

namespace hs::bench::cli {
namespace {

struct Signal {
  int number;
  const char* name;
  ExitCode code;
};
constexpr Signal stops[] = {{SIGINT, "SIGINT", ExitCode::interrupted},
                            {SIGTERM, "SIGTERM", ExitCode::terminated},
                            {SIGHUP, "SIGHUP", ExitCode::hung_up}};
constexpr Signal crashes[] = {{SIGSEGV, "SIGSEGV", ExitCode::internal},
                              {SIGBUS, "SIGBUS", ExitCode::internal},
                              {SIGFPE, "SIGFPE", ExitCode::internal},
                              {SIGILL, "SIGILL", ExitCode::internal},
                              {SIGABRT, "SIGABRT", ExitCode::internal}};

std::atomic<int> caught = 0;
std::atomic<bool> last_line_begun = false;
constexpr unsigned time_to_finish = 10;
bool stays = false;                     // after the last line
std::atomic<unsigned> time_to_ask = 1;  // seconds from a signal until the handler acts
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<unsigned>::is_always_lock_free);
std::array<char, 160> running = {"the command line"};
const char* const* running_op = nullptr;  // of the thread that called watch_signals(); workers run on behalf of its op

template <size_t size>
const Signal& row_of(const Signal (&table)[size], int number) {
  return *std::ranges::find(table, number, &Signal::number);
}

// A line of text that uses no heap; excess text is truncated.
class Line {
 public:
  Line& operator<<(const char* part) {
    while (*part != '\0' && size_ < text_.size() - 1) text_[size_++] = *part++;
    return *this;
  }
  void write() {
    text_[size_++] = '\n';
    pollfd error = {STDERR_FILENO, POLLOUT, 0};  // a full pipe must not block the exit
    if (::poll(&error, 1, 500) == 1) write_all(STDERR_FILENO, {text_.data(), size_});
  }

 private:
  std::array<char, 512> text_{};
  size_t size_ = 0;
};

// Only async-signal-safe calls from here to the installation of the handlers.
[[noreturn]] void wait_for_end(ExitCode code) {
  for (unsigned left = 2; left > 0;) left = ::sleep(left);
  ::_exit(static_cast<int>(code));
}

Line begin_line() {
  Line line;
  if (::isatty(STDERR_FILENO) != 0) line << "\r\033[K";  // the display of progress
  line << program_name << ": ";
  return line;
}

[[noreturn]] void stop_now() {
  const Signal& signal = row_of(stops, caught);
  if (last_line_begun.exchange(true)) wait_for_end(signal.code);
  remove_temporary_paths();
  Line line = begin_line();
  line << "stopped by " << signal.name << " while running " << running.data();
  line.write();
  ::_exit(static_cast<int>(signal.code));
}

void on_stop(int number) {
  int none = 0;
  if (!caught.compare_exchange_strong(none, number)) stop_now();
  ::alarm(time_to_ask);
}

void on_alarm(int) {
  if (caught != 0 && !last_line_begun) stop_now();
}

[[noreturn]] void on_crash(int number) {
  if (last_line_begun.exchange(true)) wait_for_end(ExitCode::internal);
  remove_temporary_paths();
  Line line = begin_line();
  line << "internal error: " << row_of(crashes, number).name << " in ";
  line << (**running_op != '\0' ? *running_op : "no op") << ", while running " << running.data();
  line << "; please report it";
  line.write();
  ::_exit(static_cast<int>(ExitCode::internal));
}

void handle(int number, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  if (handler == on_crash) {
    // Blocked, so that a fault within the handler kills the program at once.
    for (const Signal& crash : crashes) sigaddset(&action.sa_mask, crash.number);
  }
  sigaction(number, &action, nullptr);
}

void watch_crashes() {
#ifndef HALFSTEP_SANITIZED
  running_op = &Op::current();
  alignas(64) static std::array<std::byte, size_t{128} << 10> stack;  // used if the stack has overflowed
  stack_t alternate = {};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  for (const Signal& crash : crashes) handle(crash.number, on_crash, SA_ONSTACK);
  std::set_terminate([] { std::abort(); });  // without the runtime's own message
#endif
}

}  // namespace

void watch_signals() {
  name_running_command("the command line");
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_IGN);
  for (const Signal& stop : stops) {
    struct sigaction before = {};
    sigaction(stop.number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) handle(stop.number, on_stop, SA_RESTART);
  }
  handle(SIGALRM, on_alarm, SA_RESTART);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  watch_crashes();
}

void check_limits() {
  constexpr rlim_t least_stack = rlim_t{256} << 10, least_files = 16;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < least_stack) {
    fail(ExitCode::out_of_memory, "the stack is limited to {} KiB, expected {} or more; raise it with `ulimit -s`",
         limit.rlim_cur >> 10, least_stack >> 10);
  }
  // With fewer, even removing a temporary folder fails.
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < least_files) {
    fail(ExitCode::io, "only {} files may be open at a time, expected {} or more; raise it with `ulimit -n`",
         limit.rlim_cur, least_files);
  }
}

void name_running_command(std::string_view name) {
  const std::string text =
      fmt::format("{} ({} {}, commit {})", name, program_name, build_info.version, build_info.commit);
  running[text.copy(running.data(), running.size() - 1)] = '\0';
}

void check_signals(const std::string& where) {
  if (caught == 0) return;
  const Signal& signal = row_of(stops, caught);
  fail(signal.code, "stopped by {} {}", signal.name, where);
}

void allow_to_finish() { time_to_ask = time_to_finish; }

bool stop_requested() {
  if (caught == 0) return false;
  ::alarm(0);
  return true;
}

bool is_stop(ExitCode code) { return std::ranges::find(stops, code, &Signal::code) != std::end(stops); }

void begin_last_line() {
  if (last_line_begun.exchange(true)) {
    for (;;) ::pause();
  }
}

void stay_at_the_end() { stays = true; }
void wait_at_the_end() {
  for (unsigned left = stays ? time_to_finish : 0; left > 0;) left = ::sleep(left);
}

}  // namespace hs::bench::cli
