#include "bench/cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "bench/cli/clock.h"
#include "engine/check.h"

namespace hs::bench::cli {
namespace {

constexpr int check_interval_ms = 100;
constexpr auto time_to_end = std::chrono::seconds(1);
constexpr size_t most_output = size_t{64} << 20;
constexpr size_t kept_of_stderr = size_t{16} << 10;

std::atomic<pid_t> running_group = -1;
static_assert(std::atomic<pid_t>::is_always_lock_free);  // for signal handlers

// Both ends are closed on exec: the child has copies of those that are its own.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail(ExitCode::io, "no pipe: {}", std::strerror(errno));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int reader() const { return ends_[0]; }  // -1 once all is read: poll() skips it
  int writer() const { return ends_[1]; }
  void close_reader() { close_end(0); }
  void close_writer() { close_end(1); }

 private:
  void close_end(size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }
  std::array<int, 2> ends_{};
};

class Child {
 public:
  Child(const std::vector<std::string>& words, const Pipe& out, const Pipe& err);
  ~Child() {
    if (id_ > 0) end();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // It stays a zombie until reap(), so its number, which is that of its group, is nobody else's.
  bool has_ended() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == id_;
  }

  void end() {
    ::kill(-id_, SIGTERM);
    for (const auto start = Clock::now(); !has_ended() && Clock::now() - start < time_to_end;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    reap();
  }

  // The status of wait(). REQUIRES: not called before
  int reap() {
    ::kill(-id_, SIGKILL);
    running_group = -1;
    int status = 0;
    while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return status;
  }

 private:
  pid_t id_ = -1;
};

Child::Child(const std::vector<std::string>& words, const Pipe& out, const Pipe& err) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.writer(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err.writer(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t to_default;  // this program ignores them, and what is ignored stays so in a child
  sigemptyset(&to_default);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&to_default, signal);
  posix_spawnattr_setsigdefault(&attributes, &to_default);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawnp(&id_, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) {
    running_group = id_;
    return;
  }
  id_ = -1;
  fail(ExitCode::io, "{}: cannot be started: {}", words[0], std::strerror(error));
}

// What the child says.
class Output {
 public:
  Pipe out_pipe, err_pipe;
  std::string out, err;  // of stderr the end

  // Waits until there is something to read, or so long; false if there was not.
  bool read(int milliseconds) {
    std::array<pollfd, 2> pipes = {{{out_pipe.reader(), POLLIN, 0}, {err_pipe.reader(), POLLIN, 0}}};
    if (::poll(pipes.data(), pipes.size(), milliseconds) <= 0) return false;
    if (pipes[0].revents != 0) read_some(out_pipe, out);
    if (pipes[1].revents != 0) read_some(err_pipe, err);
    if (out.size() > most_output) fail(ExitCode::io, "more than {} MiB on its stdout", most_output >> 20);
    if (err.size() > 2 * kept_of_stderr) err.erase(0, err.size() - kept_of_stderr);
    return true;
  }

  bool is_at_end() const { return out_pipe.reader() < 0 && err_pipe.reader() < 0; }

 private:
  // What is there now, to the end of `text`; closes the pipe at its end.
  static void read_some(Pipe& pipe, std::string& text) {
    std::array<char, 65536> buffer;
    const ssize_t size = ::read(pipe.reader(), buffer.data(), buffer.size());
    if (size > 0) {
      text.append(buffer.data(), static_cast<size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      pipe.close_reader();
    }
  }
};

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "";
  const size_t begin = text.find_last_of("\r\n", end) + 1;  // npos + 1 is 0
  return text.substr(begin, end - begin + 1);
}

}  // namespace

Finished run_process(const std::vector<std::string>& words, double seconds, const std::function<void()>& check) {
  Finished finished;
  Output output;
  Child child(words, output.out_pipe, output.err_pipe);
  output.out_pipe.close_writer();
  output.err_pipe.close_writer();
  const auto start = Clock::now();
  // What it left behind may hold the pipes open, so their end is not what is waited for.
  while (!child.has_ended()) {
    check();
    finished.too_late = seconds_since(start) > seconds;
    if (finished.too_late) break;
    output.read(output.is_at_end() ? 10 : check_interval_ms);
  }
  if (finished.too_late) {
    child.end();
  } else {
    const int status = child.reap();
    if (WIFEXITED(status)) finished.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) finished.signal = WTERMSIG(status);
  }
  while (output.read(0)) {
  }
  finished.out = std::move(output.out);
  finished.last_words = last_line(output.err);
  return finished;
}

void kill_running_process() noexcept {
  if (const pid_t group = running_group; group > 0) ::kill(-group, SIGKILL);
}

std::string command_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n\"'\\$`*?[]{}()<>|&;#~!") == std::string::npos;
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += (line.empty() ? "" : " ") + (plain ? word : "'" + quoted + "'");
  }
  return line;
}

}  // namespace hs::bench::cli
