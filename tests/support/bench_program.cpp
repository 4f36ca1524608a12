#include "tests/support/bench_program.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "source_dir.h"

namespace hs::test {
namespace {

Words command(const Words& words) {
  Words all;
  std::istringstream emulator(HALFSTEP_EMULATOR);
  for (std::string word; emulator >> word;) all.push_back(word);
  all.emplace_back(HALFSTEP_BENCH_PROGRAM);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

[[noreturn]] void become(const Words& words, const Surroundings& around, int out, int err) {
  // A program started in the background ignores SIGINT, and its children inherit that.
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) std::signal(signal, SIG_DFL);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (around.stdout_file == "closed") {
    close(STDOUT_FILENO);
  } else if (!around.stdout_file.empty()) {
    dup2(open(around.stdout_file.c_str(), O_WRONLY), STDOUT_FILENO);
  }
  setenv("HOME", "/nonexistent", 1);
  setenv("LC_ALL", "C", 1);
  unsetenv("HALFSTEP_DATA");
  for (const std::string& variable : around.variables) putenv(const_cast<char*>(variable.c_str()));
  if (around.file_limit != RLIM_INFINITY) {
    const rlimit limit = {around.file_limit, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  const Words all = command(words);
  std::vector<char*> arguments;
  for (const std::string& word : all) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  if (!around.folder.empty() && chdir(around.folder.c_str()) != 0) _exit(126);
  if (around.prepare) around.prepare();
  execvp(arguments[0], arguments.data());
  _exit(126);
}

}  // namespace

std::string bench_program() { return HALFSTEP_BENCH_PROGRAM; }

bool has_python3() {
  static const bool found = std::system("python3 --version >/dev/null 2>&1") == 0;
  if (!found) MESSAGE("skipped: there is no python3");
  return found;
}

Ended run_bench(const Words& words, const Surroundings& around) {
  std::array<int, 2> out{}, err{};
  REQUIRE(pipe2(out.data(), O_CLOEXEC) == 0);
  REQUIRE(pipe2(err.data(), O_CLOEXEC) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) become(words, around, out[1], err[1]);
  close(out[1]);
  close(err[1]);

  Ended ended;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto seconds = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  auto ask = around.ask;
  bool killed = false;
  std::array<pollfd, 2> pipes = {{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    if (poll(pipes.data(), pipes.size(), ask ? 5 : 100) < 0) continue;
    for (pollfd& pipe : pipes) {
      if (pipe.fd < 0 || pipe.revents == 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t size = read(pipe.fd, buffer.data(), buffer.size());
      if (size <= 0) {
        close(pipe.fd);
        pipe.fd = -1;  // poll() skips it
        continue;
      }
      (&pipe == &pipes[0] ? ended.out : ended.err).append(buffer.data(), static_cast<size_t>(size));
    }
    if (const int signal = ask ? ask(ended.err) : 0; signal != 0) {
      kill(child, signal);
      ask = nullptr;
    }
    if (around.patience > 0 && seconds() > around.patience && !std::exchange(killed, true)) kill(child, SIGKILL);
  }
  int status = 0;
  rusage usage = {};
  REQUIRE(wait4(child, &status, 0, &usage) == child);
  ended.seconds = seconds();
  ended.megabytes = usage.ru_maxrss / 1024;
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  return ended;
}

Ended run_bench_line(const std::string& line, const Surroundings& around) {
  std::istringstream stream(line);
  return run_bench({std::istream_iterator<std::string>(stream), {}}, around);
}

Ended run_successfully(const std::string& line, const Surroundings& around) {
  const Ended ended = run_bench_line(line, around);
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  return ended;
}

std::string plan_of(const std::string& line) {
  const TemporaryFolder folder;
  const std::string file = (folder / "r.").string();
  const Ended ended = run_successfully(line + " --dry-run --json " + file + "json --html " + file + "html");
  CHECK(folder.names().empty());
  return ended.out;
}

nlohmann::json record_of(const std::string& line, const Surroundings& around) {
  return nlohmann::json::parse(run_successfully(line + " --json -", around).out);
}

void check_one_line(const Ended& ended, int code, const std::string& part) {
  CAPTURE(ended.err);
  CAPTURE(part);
  CHECK(ended.code == code);
  CHECK(ended.out == "");
  // If it gets that far, a CUDA build first reports that no GPU is available, and every build that digits are
  // generated.
  std::vector<std::string> lines = lines_of(ended.err);
  std::erase_if(lines, [](const std::string& line) {
    return line.ends_with(": using the CPU") || contains(line, " from generated digits: ") ||
           contains(line, "MNIST was not found");
  });
  CHECK(lines.size() == 1);
  if (lines.empty()) return;
  CHECK(lines.back().starts_with("halfstep-bench: "));
  CHECK(contains(lines.back(), part));
}

void check_mistakes(const std::vector<Mistake>& mistakes, const Surroundings& around) {
  for (const Mistake& mistake : mistakes) {
    CAPTURE(mistake.line);
    check_one_line(run_bench_line(mistake.line, around), mistake.code, mistake.part);
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace hs::test
