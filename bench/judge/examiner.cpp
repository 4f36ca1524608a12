#include "bench/judge/examiner.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "bench/cli/clock.h"
#include "bench/cli/interrupt.h"
#include "bench/judge/isolation.h"
#include "bench/judge/wire.h"
#include "engine/check.h"
#include "engine/parallel.h"

namespace hs::bench::judge {
namespace {

constexpr int patience_ms = 20'000;  // for one answer

// What the subject gets of the environment: nothing that lets another library take the place of ours.
std::vector<std::string> environment() {
  std::vector<std::string> all = {"HALFSTEP_EMULATOR_EVERY_ORDER=1", "HALFSTEP_EMULATOR_PRIVATE_PAGES=1",
                                  "HALFSTEP_EMULATOR_STREAMS=random"};
  for (const char* name :
       {"HALFSTEP_ISA", "LD_LIBRARY_PATH", "OMP_WAIT_POLICY", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "PATH"}) {
    if (const char* value = std::getenv(name)) all.push_back(fmt::format("{}={}", name, value));
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  auto all = mapped(words, [](const std::string& word) { return const_cast<char*>(word.data()); });
  all.push_back(nullptr);
  return all;
}

// The file under a number that none has in the subject, where each could have the number that another one is to get.
int renumbered(int file) {
  const int other = file < 0 ? -1 : ::fcntl(file, F_DUPFD_CLOEXEC, memory_file + 1);
  if (other < 0) fail(ExitCode::io, "no file to share with another process: {}", std::strerror(errno));
  ::close(file);
  return other;
}

// If the emulator has reported a mistake: its error says less.
void refuse_reported(const std::string& printed) {
  constexpr std::string_view sign = "CUDA emulator: ";
  const size_t at = printed.find(sign);
  if (at == std::string::npos) return;
  const size_t begin = at + sign.size();
  throw Refusal("emulator", printed.substr(begin, printed.find('\n', begin) - begin));
}

}  // namespace

// What throws after the delegated constructor calls the destructor.
Examiner::Examiner(const std::string& plugin, const std::string& shown, Memory guarded, int threads, Device device)
    : Examiner() {
  ::prctl(PR_SET_DUMPABLE, 0);  // no process of the same user reads or writes the memory of this one
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    fail(ExitCode::io, "no socket for another process: {}", std::strerror(errno));
  }
  socket_ = sockets[0];
  sockets[1] = renumbered(sockets[1]);
  memory_file_ = renumbered(::memfd_create("calls", MFD_CLOEXEC));
  output_ = renumbered(::memfd_create("output", MFD_CLOEXEC));
  void* memory = MAP_FAILED;
  if (::ftruncate(memory_file_, shared_bytes) == 0) {
    memory = ::mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_file_, 0);
  }
  if (memory == MAP_FAILED) fail(ExitCode::out_of_memory, "{} bytes cannot be mapped", shared_bytes);
  memory_ = {static_cast<std::byte*>(memory), shared_bytes};
  std::vector<std::string> words = {"halfstep-bench", subject_word}, variables = environment();
  const std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  std::signal(SIGPIPE, SIG_IGN);
  process_ = ::fork();
  if (process_ == 0) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int input = ::open("/dev/null", O_RDONLY);
    ::dup2(input, 0);
    ::dup2(output_, 1);
    ::dup2(output_, 2);
    ::dup2(sockets[1], socket_file);
    ::dup2(memory_file_, memory_file);
    ::close_range(memory_file + 1, ~0u, 0);
    ::execve("/proc/self/exe", arguments.data(), environment.data());
    ::_exit(127);
  }
  ::close(sockets[1]);
  if (process_ < 0) fail(ExitCode::io, "no process can be started: {}", std::strerror(errno));
  const Json hello = ask({{"plugin", plugin},
                          {"shown", shown},
                          {"guard", guarded == Memory::guarded},
                          {"threads", threads},
                          {"cuda", device == Device::cuda}});
  if (hello.contains("error")) {
    const int code = hello.value("code", static_cast<int>(ExitCode::internal));
    throw Error(static_cast<ExitCode>(code), hello.at("error").get<std::string>());
  }
  variants_ = hello.value("variants", Json::array());
}

Examiner::~Examiner() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  for (const int file : {socket_, memory_file_, output_}) {
    if (file >= 0) ::close(file);
  }
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

void Examiner::wait_for_message() {
  pollfd waited{socket_, POLLIN, 0};
  for (int waited_ms = 0; waited_ms < patience_ms; waited_ms += 100) {
    cli::check_signals("while judging");
    const int ready = ::poll(&waited, 1, 100);
    if (ready > 0) return;
  }
  throw Refusal("isolation", fmt::format("it did not return within {} s", patience_ms / 1000));
}

Json Examiner::ask(const Json& question) {
  go_on();
  if (!send_message(socket_, question.dump())) refuse_dead();
  wait_for_message();
  const std::string text = receive_message(socket_);
  if (text.empty()) refuse_dead();
  refuse_reported(printed());
  try {
    return parse(text, "its answer");
  } catch (const Error& error) {
    throw Refusal("isolation", error.what());
  }
}

double Examiner::run_calls(const std::vector<size_t>& order) {
  stop();
  std::string message(1, judge::run_calls);
  for (const size_t which : order) message += static_cast<char>(which);
  const auto begin = Clock::now();
  go_on();
  if (!send_message(socket_, message)) refuse_dead();
  wait_for_message();
  const double seconds = seconds_since(begin);
  stop();
  if (receive_message(socket_) != std::string(1, calls_done)) refuse_dead();
  return seconds;
}

void Examiner::end_calls() {
  go_on();
  send_message(socket_, {&judge::end_calls, 1});
}

void Examiner::stop() {
  if (stopped_) return;
  int status = 0;
  if (::kill(process_, SIGSTOP) != 0 || ::waitpid(process_, &status, WUNTRACED) < 0) refuse_dead();
  if (!WIFSTOPPED(status)) refuse_dead();
  stopped_ = true;
}

void Examiner::go_on() {
  if (stopped_) ::kill(process_, SIGCONT);
  stopped_ = false;
}

void Examiner::check_threads() const {
  const std::filesystem::path tasks = fmt::format("/proc/{}/task", process_);
  const auto count = std::distance(std::filesystem::directory_iterator(tasks), {});
  if (count > threads())
    throw Refusal("leftover", fmt::format("it has {} threads, and was given {}", count, threads()));
}

std::string Examiner::printed() {
  std::string all;
  std::array<char, 4096> part{};
  for (ssize_t size; (size = ::pread(output_, part.data(), part.size(), printed_)) > 0; printed_ += size) {
    if (all.size() < most_message) all.append(part.data(), static_cast<size_t>(size));
  }
  if (printed_ >= most_printed) throw Refusal("isolation", fmt::format("it printed {} bytes or more", most_printed));
  return all;
}

void Examiner::refuse_dead() {
  go_on();
  int status = 0;
  for (int tries = 0; tries < 100 && ::waitpid(process_, &status, WNOHANG) == 0; ++tries) ::usleep(10'000);
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
  const std::string text = printed();
  refuse_reported(text);
  const std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with("guard page: ")) throw Refusal("guard", line.substr(12));
  if (line.starts_with("system call ")) {
    throw Refusal("isolation", fmt::format("it asked the system for what no kernel needs: {}", line));
  }
  const std::string how = WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                              : fmt::format("exit code {}", WEXITSTATUS(status));
  throw Refusal("isolation", fmt::format("its process ended by {}{}{}", how, line.empty() ? "" : ": ", line));
}

}  // namespace hs::bench::judge
