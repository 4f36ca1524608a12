#include "bench/cli/interrupt.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "engine/check.h"
#include "engine/files/output_file.h"
#include "engine/observe.h"

namespace hs::bench::cli {
namespace {

constexpr unsigned time_to_finish = 10;
std::atomic<int> caught = 0;            // the first signal to stop; atomics of these types are lock-free on Linux
std::atomic<unsigned> time_to_ask = 1;  // seconds from that signal until the handler acts
std::atomic<bool> last_line_begun = false;
bool stays = false;  // after the last line
std::array<char, 160> running = {"the command line"};
std::array<char, 200> whom = {"; please report it"};
const char* const* running_op = nullptr;  // of the thread that called watch_signals(); workers run on behalf of its op

struct Signal {
  int number;
  const char* name;
  ExitCode code;
};
constexpr Signal signals[] = {{SIGINT, "SIGINT", ExitCode::interrupted},  {SIGTERM, "SIGTERM", ExitCode::terminated},
                              {SIGHUP, "SIGHUP", ExitCode::hung_up},      {SIGUSR1, "SIGUSR1", ExitCode::terminated},
                              {SIGUSR2, "SIGUSR2", ExitCode::terminated}, {SIGXCPU, "SIGXCPU", ExitCode::terminated},
                              {SIGSEGV, "SIGSEGV", ExitCode::internal},   {SIGBUS, "SIGBUS", ExitCode::internal},
                              {SIGFPE, "SIGFPE", ExitCode::internal},     {SIGILL, "SIGILL", ExitCode::internal},
                              {SIGABRT, "SIGABRT", ExitCode::internal}};

const Signal& row_of(int number) { return *std::ranges::find(signals, number, &Signal::number); }

// Calls only what is async-signal-safe, as every handler here. Text that is too long is cut.
[[noreturn]] void end_now(ExitCode code, std::initializer_list<const char*> parts) {
  if (last_line_begun.exchange(true)) {
    ::sleep(2);  // until the other line is written
    ::_exit(static_cast<int>(code));
  }
  remove_temporary_paths();
  std::array<char, 512> line;
  size_t size = 0;
  const auto add = [&](const char* part) {
    while (*part != '\0' && size < line.size() - 1) line[size++] = *part++;
  };
  if (::isatty(STDERR_FILENO) != 0) add("\r\033[K");  // the display of progress
  for (const char* part : parts) add(part);
  line[size++] = '\n';
  pollfd error = {STDERR_FILENO, POLLOUT, 0};  // a full pipe must not block the exit
  if (::poll(&error, 1, 500) == 1) write_all(STDERR_FILENO, {line.data(), size});
  remove_temporary_paths();  // one that another thread was just creating
  ::_exit(static_cast<int>(code));
}

[[noreturn]] void stop_now() {
  const Signal& signal = row_of(caught);
  end_now(signal.code, {program_name, ": stopped by ", signal.name, " while running ", running.data()});
}

void on_stop(int number) {
  int none = 0;
  if (!caught.compare_exchange_strong(none, number)) {
    if (number == SIGXCPU && none == number) return;  // comes again each second
    stop_now();
  }
  ::alarm(time_to_ask);
}

void on_alarm(int) {
  if (caught != 0 && !last_line_begun) stop_now();
}

[[noreturn]] void on_crash(int number) {
  end_now(ExitCode::internal,
          {program_name, ": internal error: ", row_of(number).name, " in ",
           **running_op != '\0' ? *running_op : "no op", ", while running ", running.data(),
           number == SIGBUS ? "; a file that was cut while it was read does this; if none was" : "", whom.data()});
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);  // a fault within a handler kills the program at once
  sigaction(number, &action, nullptr);
}

}  // namespace

void watch_signals() {
  name_running_command("the command line");
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_IGN);
  handle(SIGALRM, on_alarm);
  for (const Signal& signal : signals) {
    struct sigaction before = {};
    sigaction(signal.number, nullptr, &before);
    if (is_stop(signal.code) && before.sa_handler != SIG_IGN) handle(signal.number, on_stop);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have handlers of their own
  running_op = &Op::current();
  alignas(64) static std::array<std::byte, size_t{128} << 10> stack;  // used if the stack has overflowed
  stack_t alternate = {};
  alternate.ss_sp = stack.data();
  alternate.ss_size = stack.size();
  sigaltstack(&alternate, nullptr);
  for (const Signal& signal : signals) {
    if (signal.code == ExitCode::internal) handle(signal.number, on_crash);
  }
  std::set_terminate([] { std::abort(); });  // without the runtime's own message
#endif
}

void check_limits() {
  constexpr rlim_t least_stack = rlim_t{2} << 20, least_files = 16;  // blocks of a product take 0.9 MiB of a stack
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

void name_suspect(std::string_view plugin) {
  const std::string text = fmt::format("; a plug-in is loaded, {}: report it to its author first", plugin);
  whom[text.copy(whom.data(), whom.size() - 1)] = '\0';
}

const char* whom_to_tell() { return whom.data(); }

void check_signals(const std::string& where) {
  if (caught == 0) return;
  const Signal& signal = row_of(caught);
  fail(signal.code, "stopped by {} {}", signal.name, where);
}

void allow_to_finish() { time_to_ask = time_to_finish; }

bool stop_requested() {
  if (caught == 0) return false;
  ::alarm(0);
  return true;
}

bool is_stop(ExitCode code) {
  return code == ExitCode::interrupted || code == ExitCode::terminated || code == ExitCode::hung_up;
}

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
