#include "bench/cli/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "bench/cli/clock.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/json_file.h"
#include "engine/check.h"

namespace hs::bench::cli {
namespace {

using TemporaryFile = std::unique_ptr<FILE, int (*)(FILE*)>;

TemporaryFile temporary_file() {
  TemporaryFile file(std::tmpfile(), std::fclose);
  if (!file) fail(ExitCode::io, "a temporary file cannot be created: {}", std::strerror(errno));
  ::fcntl(::fileno(file.get()), F_SETFL, O_APPEND);  // to look at its size moves the position that the child has, too
  return file;
}

// The last bytes of a file, at most `limit`.
std::string tail_of(FILE* file, uint64_t limit) {
  std::fseek(file, 0, SEEK_END);
  const auto size = static_cast<uint64_t>(std::ftell(file));
  std::string text(std::min(size, limit), '\0');
  std::fseek(file, -static_cast<long>(text.size()), SEEK_END);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

// begin: becomes the program, or returns because it cannot, with errno.
pid_t start_child(const std::string& name, const std::function<void()>& begin, FILE* out, FILE* err) {
  std::array<int, 2> failure = {};
  if (::pipe2(failure.data(), O_CLOEXEC) != 0) fail(ExitCode::io, "{}: no pipe: {}", name, std::strerror(errno));
  std::signal(SIGCHLD, SIG_DFL);  // if it is ignored, waiting for a child fails
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // even if we are killed
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
    const int in = ::open("/dev/null", O_RDONLY);
    if (::dup2(in, 0) == 0 && ::dup2(::fileno(out), 1) == 1 && ::dup2(::fileno(err), 2) == 2) {
      begin();
    }
    const int error = errno;
    if (::write(failure[1], &error, sizeof error) < 0) ::_exit(126);
    ::_exit(127);
  }
  int error = child < 0 ? errno : 0;
  ::close(failure[1]);
  const bool failed = child < 0 || ::read(failure[0], &error, sizeof error) > 0;  // nothing if exec succeeded
  ::close(failure[0]);
  if (!failed) return child;
  if (child > 0) ::waitpid(child, nullptr, 0);
  fail(ExitCode::io, "{}: cannot be started: {}", name, std::strerror(error));
}

// It stays a zombie, so that its number, which is that of its group, is nobody else's.
bool child_has_ended(pid_t child) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == child;
}

int end_group(pid_t child) {
  constexpr double seconds_to_end = 1;
  const auto start = Clock::now();
  if (!child_has_ended(child)) ::kill(-child, SIGTERM);
  while (!child_has_ended(child) && seconds_since(start) < seconds_to_end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(-child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// mpirun ends what it has to say with a line of dashes.
std::string last_words(std::string_view text) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty()) {
    const size_t newline = text.rfind('\n');
    std::string_view line = text.substr(newline + 1);  // all of it if there is none
    text = text.substr(0, newline == std::string_view::npos ? 0 : newline);
    if (std::ranges::none_of(line, is_word)) continue;
    const size_t name = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz_-");
    if (name != 0 && line.substr(std::min(name, line.size())).starts_with(": ")) line.remove_prefix(name + 2);
    return std::string(line);
  }
  return "";
}

}  // namespace

std::string ChildEnd::text() const {
  const std::string how = signal != 0 ? fmt::format("ended by signal {}", signal) : fmt::format("exit code {}", code);
  return how + (last_words.empty() ? "" : ": " + last_words);
}

namespace {

ChildEnd run(const std::string& name, const std::function<void()>& begin_child, double seconds,
             const std::string& where) {
  const TemporaryFile out = temporary_file(), err = temporary_file();
  const pid_t child = start_child(name, begin_child, out.get(), err.get());
  const auto begin = Clock::now();
  bool late = false;
  try {
    while (!child_has_ended(child) && !late) {
      check_signals(where);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      late = seconds_since(begin) > seconds;
      if (std::fseek(out.get(), 0, SEEK_END) == 0 && std::ftell(out.get()) > static_cast<long>(JsonLimits::bytes)) {
        fail(ExitCode::io, "more than {} MiB on its stdout", JsonLimits::bytes >> 20);
      }
    }
  } catch (...) {
    end_group(child);
    throw;
  }
  const int status = end_group(child);
  const std::string said = tail_of(err.get(), 16 << 10);
  return {late,
          WIFEXITED(status) ? WEXITSTATUS(status) : 0,
          WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          tail_of(out.get(), JsonLimits::bytes),
          said,
          last_words(said)};
}

}  // namespace

ChildEnd run_program(const std::vector<std::string>& words, double seconds, const std::string& where) {
  auto arguments = mapped(words, [](const std::string& word) { return const_cast<char*>(word.c_str()); });
  arguments.push_back(nullptr);
  return run(
      words[0], [&] { ::execvp(arguments[0], arguments.data()); }, seconds, where);
}

ChildEnd run_function(const std::function<void()>& work, double seconds, const std::string& where) {
  const auto begin = [&] {
    ::close_range(3, ~0u, 0);  // whoever waits for the program to begin reads from one of them
    for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
    ::prctl(PR_SET_DUMPABLE, 0);   // writes no core
    [&]() noexcept { work(); }();  // or it would come back as a second copy of the program
    ::_exit(0);
  };
  return run("another process", begin, seconds, where);
}

}  // namespace hs::bench::cli
