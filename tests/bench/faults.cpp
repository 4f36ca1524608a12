// Faults of processes, signals, threads, outputs and resources: one row each. Those of records are in
// test_bench_faults_records.cpp.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "bench/cli/interrupt.h"
#include "bench/report/outputs.h"
#include "engine/error.h"
#include "engine/observe.h"
#include "engine/parallel.h"
#include "source_dir.h"
#include "tests/support/bench_faults.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace hs::test;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words short_training = {"train",   "--data", "synthetic", "--train",  "64",  "--test",  "16",
                              "--model", "mlp",    "--quiet",   "--device", "cpu", "--epochs"};
const Words brief = with(short_training, {"1"});
// A fault that is noticed only after it is a hang here.
const Words endless = with(short_training, {"10000"});

const char* const peer_scripts = HALFSTEP_SOURCE_DIR "/bench/peers";

std::function<void()> limited(__rlimit_resource resource, rlim_t most) {
  return [resource, most] {
    const rlimit limit = {most, most};
    setrlimit(resource, &limit);
  };
}

// Without a right to ignore limits, which root has.
void become_nobody() {
  constexpr uid_t unused = 54321;
  if (geteuid() != 0) return;
  if (setgroups(0, nullptr) != 0 || setresgid(unused, unused, unused) != 0 || setresuid(unused, unused, unused) != 0) {
    _exit(125);
  }
}

// Whether a program that became_nobody() can be started at all.
bool others_may_run(const std::string& program) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    become_nobody();
    _exit(access(program.c_str(), X_OK) == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status == 0;
}

// As Fault::prepare: a child of the program sends it the signals, the second 50 ms after the first.
std::function<void()> sent_after(double seconds, const std::vector<int>& signals) {
  return [seconds, signals] {
    const pid_t program = getpid();
    if (fork() != 0) return;
    usleep(static_cast<useconds_t>(seconds * 1e6));
    for (const int signal : signals) {
      if (getppid() == program) kill(program, signal);
      usleep(50000);
    }
    _exit(0);
  };
}

TEST_CASE("outputs that cannot be written are refused before the work") {
  const std::string long_name(300, 'x');
  const auto make_pipe = [](const fs::path& folder) { REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0); };
  const auto link_folder = [](const fs::path& folder) {
    fs::create_directory(folder / "a");
    fs::create_directory_symlink("a", folder / "b");
  };
  const auto link_files = [](const fs::path& folder) {
    std::ofstream(folder / "a") << "old";
    fs::create_symlink("a", folder / "b");
    fs::create_hard_link(folder / "a", folder / "c");
  };
  const Fault faults[] = {
      {.name = "no folder", .arguments = with(endless, {"--json", "no/r.json"}), .exit_code = 4, .line = "no/r.json"},
      {.name = "a folder", .arguments = with(endless, {"--json", "."}), .exit_code = 4, .line = "is a directory"},
      {.name = "a long name", .arguments = with(endless, {"--json", long_name}), .exit_code = 4, .line = "too long"},
      {.name = "a long trace", .arguments = with(endless, {"--trace", long_name}), .exit_code = 4, .line = "too long"},
      {.name = "convert to a long name",
       .arguments = {"convert", "synthetic", long_name, "--quiet"},
       .exit_code = 4,
       .line = "too long"},
      {.name = "a pipe without a reader",
       .arguments = with(endless, {"--json", "pipe"}),
       .exit_code = 4,
       .line = "is a pipe that no program reads",
       .setup = make_pipe},
      {.name = "the same file twice",
       .arguments = with(endless, {"--json", "x", "--csv", "./x"}),
       .exit_code = 2,
       .line = "--json and --csv: both go to "},
      {.name = "the same file by a linked folder",
       .arguments = with(endless, {"--html", "a/x", "--trace", "b/x"}),
       .exit_code = 2,
       .line = "--trace and --html: both go to ",
       .setup = link_folder},
      {.name = "the same file by a symbolic link",
       .arguments = with(endless, {"--md", "a", "--json", "b"}),
       .exit_code = 2,
       .line = "--json and --md: both go to ",
       .setup = link_files},
      {.name = "the same file by a hard link",
       .arguments = with(endless, {"--md", "a", "--json", "c"}),
       .exit_code = 2,
       .line = "--json and --md: both go to ",
       .setup = link_files},
      {.name = "explain's graph and record",
       .arguments = {"explain", "--dot", "x", "--json", "x"},
       .exit_code = 2,
       .line = "--dot and --json: both go to "},
      {.name = "a file that grows too large",
       .arguments = with(brief, {"--json", "r.json"}),
       .exit_code = 4,
       .line = "--json r.json: cannot be written: File too large",
       .prepare = limited(RLIMIT_FSIZE, 1024)},
      {.name = "a converted file that grows too large",
       .arguments = {"convert", "synthetic", "out", "--train", "2000", "--test", "100", "--quiet"},
       .exit_code = 4,
       .line = "File too large",
       .prepare = limited(RLIMIT_FSIZE, 100000)},
      {.name = "a temporary file that grows too large",
       .arguments = {"loader", "--data", "synthetic", "--quiet", "--samples", "2000"},
       .exit_code = 4,
       .line = "File too large",
       .prepare = limited(RLIMIT_FSIZE, 100000)},
      {.name = "no folder for temporary files, loader",
       .arguments = {"loader", "--data", "synthetic", "--quiet"},
       .exit_code = 4,
       .line = "set TMPDIR",
       .variables = {"TMPDIR=/nonexistent"}},
      {.name = "no folder for temporary files, techniques",
       .arguments = {"techniques", "--data", "synthetic", "--quiet"},
       .exit_code = 4,
       .line = "set TMPDIR",
       .variables = {"TMPDIR=/nonexistent"}},
      {.name = "no folder for temporary files, peers",
       .arguments = {"peers", "--data", "synthetic", "--quiet", "--peers", peer_scripts},
       .exit_code = 4,
       .line = "set TMPDIR",
       .variables = {"TMPDIR=/nonexistent"}},
  };
  for (const Fault& fault : faults) check_fault(fault);
}

TEST_CASE("resources that the program needs and does not get") {
  constexpr rlim_t gigabytes = rlim_t{1} << 30;
  Fault faults[] = {
      {.name = "address space for threads",
       .arguments = with(endless, {"--threads", "1024"}),
       .exit_code = 8,
       .line = "--threads 1024: only ",
       .prepare = limited(RLIMIT_AS, 2 * gigabytes)},
      {.name = "address space for workers",
       .arguments = with(endless, {"--workers", "256"}),
       .exit_code = 8,
       .line = "--workers 256: only ",
       .prepare = limited(RLIMIT_AS, 1 * gigabytes)},
      {.name = "processes for threads",
       .arguments = with(endless, {"--threads", "4"}),
       .exit_code = 8,
       .line = "--threads 4: only 1 threads can be started",
       .prepare =
           [] {
             become_nobody();
             limited(RLIMIT_NPROC, 1)();
           }},
      {.name = "address space for a batch",
       .arguments = {"train", "--data", "synthetic", "--quiet", "--train", "20000", "--batch", "20000"},
       .exit_code = 8,
       .line = "; use a smaller batch, several to a step by --accumulate, or --checkpoint budget=auto",
       .prepare = limited(RLIMIT_AS, gigabytes / 2)},
      {.name = "a small stack",
       .arguments = endless,
       .exit_code = 8,
       .line = "ulimit -s",
       .prepare = limited(RLIMIT_STACK, 64 << 10)},
      {.name = "few files, convert",
       .arguments = {"convert", "synthetic", "out", "--format", "idx", "--quiet"},
       .exit_code = 4,
       .line = "only 8 files may be open",
       .prepare = limited(RLIMIT_NOFILE, 8)},
      {.name = "few files, loader",
       .arguments = {"loader", "--samples", "100", "--quiet"},
       .exit_code = 4,
       .line = "only 8 files may be open",
       .prepare = limited(RLIMIT_NOFILE, 8)},
      {.name = "few files, peers",
       .arguments = {"peers"},
       .exit_code = 4,
       .line = "only 8 files may be open",
       .prepare = limited(RLIMIT_NOFILE, 8)},
  };
  for (const Fault& fault : faults) {
    // Another user's limit needs a program that other users may run.
    if (fault.name == "processes for threads" && geteuid() == 0 && !others_may_run(bench_program())) continue;
    check_fault(fault);
  }
}

struct Stop {
  int signal;
  int code;
  const char* line;
};
constexpr Stop stops[] = {
    {SIGINT, 130, "stopped by SIGINT "}, {SIGTERM, 143, "stopped by SIGTERM "}, {SIGHUP, 129, "stopped by SIGHUP "}};

TEST_CASE("every command that takes long ends soon after a signal, and leaves nothing behind") {
  const std::pair<const char*, Words> commands[] = {
      {"train", endless},
      {"train, micro-batches", {"--accumulate", "1000", "--train", "60000", "--json", "r.json"}},
      {"train, plan", {"--accumulate", "1000", "--train", "60000", "--dry-run"}},
      {"train, checkpoint plan", {"--model", "deep_cnn", "--blocks", "200", "--checkpoint", "budget=auto"}},
      {"techniques", {"techniques", "--data", "synthetic", "--quiet", "--full", "--html", "r.html"}},
      {"scaler", {"scaler", "--quiet", "--epochs", "1000"}},
      {"conv", {"conv", "--batch", "512"}},
      {"gemm", {"gemm", "--batch", "4096"}},
      {"ops", {"ops", "--batch", "4096"}},
      {"explain", {"explain", "--data", "synthetic", "--batch", "8192", "--model", "mnist_cnn_large"}},
      {"doctor", {"doctor", "--data", "synthetic", "--steps", "100000"}},
      {"loader", {"loader", "--data", "synthetic", "--quiet"}},
      {"memory", {"memory", "--quiet"}},
      {"peers", {"peers", "--data", "synthetic", "--epochs", "100", "--quiet", "--peers", peer_scripts}},
      {"convert", {"convert", "synthetic", "out", "--format", "png", "--quiet"}},
  };
  size_t row = 0;
  for (const auto& [name, words] : commands) {
    const Stop& stop = stops[row++ % std::size(stops)];
    const bool is_training = words[0].starts_with("--");
    check_fault({.name = std::string(name) + ", " + stop.line,
                 .arguments = is_training ? with({"train", "--data", "synthetic", "--quiet"}, words) : words,
                 .exit_code = stop.code,
                 .line = stop.line,
                 .seconds = 8,  // 3 on an idle machine
                 .megabytes = 8000,
                 .prepare = sent_after(1, {stop.signal})});
  }
}

TEST_CASE("every signal to stop, once and twice, leaves no temporary folder") {
  for (const Stop& stop : stops) {
    for (const std::vector<int>& signals : {std::vector<int>{stop.signal}, {stop.signal, SIGINT}}) {
      check_fault({.name = std::string(stop.line) + std::to_string(signals.size()),
                   .arguments = {"loader", "--data", "synthetic", "--quiet"},
                   .exit_code = stop.code,
                   .line = stop.line,
                   .seconds = 8,
                   .megabytes = 2000,
                   .prepare = sent_after(1, signals)});
    }
  }
}

#ifndef __SANITIZE_ADDRESS__  // which has handlers of its own

TEST_CASE("a signal that means a bug ends with one line and exit code 70") {
  for (const auto& [signal, name] : {std::pair(SIGSEGV, "SIGSEGV"),
                                     {SIGBUS, "SIGBUS"},
                                     {SIGFPE, "SIGFPE"},
                                     {SIGILL, "SIGILL"},
                                     {SIGABRT, "SIGABRT"}}) {
    check_fault({.name = name,
                 .arguments = {"loader", "--data", "synthetic", "--quiet"},
                 .exit_code = 70,
                 .line = std::string("internal error: ") + name + " in no op, while running loader (halfstep-bench 0.",
                 .seconds = 8,
                 .megabytes = 2000,
                 .prepare = sent_after(1, {signal})});
  }
}

// What a child process that watches signals writes to stderr while it does this, and its exit code.
Ended watched(const std::function<void()>& work) {
  const TemporaryFolder folder;
  const fs::path file = folder / "err";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(open(file.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    hs::bench::cli::watch_signals();
    hs::bench::cli::name_running_command("test");
    work();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  Ended ended;
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  ended.err = read_text(file);
  return ended;
}

// Overflows the stack in spite of optimization.
int recurse(volatile const int* depth) {
  volatile int numbers[1024] = {*depth};
  return numbers[0] == 1 ? 0 : recurse(numbers) + numbers[0];
}

TEST_CASE("a crash names the op, also from a worker, from a full stack and from an exception that nothing catches") {
  volatile int zero = 0;
  check_one_line(watched([&] {
                   const hs::Op op("my_op");
                   hs::parallel(2, [&](int64_t piece, int) { zero = piece == 1 ? 7 / zero : 0; });
                 }),
                 70, "internal error: SIGFPE in my_op, while running test (");
  check_one_line(watched([&] {
                   const hs::Op op("my_op");
                   recurse(&zero);
                 }),
                 70, "internal error: SIGSEGV in ");
  check_one_line(watched([] { std::thread([] { throw 1; }).join(); }), 70, "internal error: SIGABRT in no op");
}

#endif

TEST_CASE("peers waits for its runs though its parent ignores SIGCHLD") {
  if (!has_python3()) return;
  const TemporaryFolder folder;
  Surroundings around{.folder = folder.path};
  around.prepare = [] { std::signal(SIGCHLD, SIG_IGN); };
  around.patience = 120;
  const Ended ended = run_bench({"peers", "--data", "synthetic", "--quiet", "--peers", peer_scripts, "--train", "64",
                                 "--test", "16", "--epochs", "1", "--repeat", "1"},
                                around);
  CHECK_MESSAGE(ended.code == 0, ended.err);
}

TEST_CASE("a file that somebody put where temporary files were stays as it is") {
  const TemporaryFolder folder;
  std::ofstream(folder / "victim") << "precious";
  Surroundings around{.folder = folder.path};
  around.prepare = [] {
    const std::string name = ".halfstep-bench-" + std::to_string(getpid());
    if (link("victim", (name + "--json.tmp").c_str()) != 0) _exit(125);
    if (link("victim", (name + "--csv.tmp").c_str()) != 0) _exit(125);
  };
  CHECK(run_bench(with(brief, {"--json", "r.json", "--csv", "r.csv"}), around).code == 0);
  CHECK(read_text(folder / "victim") == "precious");
  CHECK(fs::is_regular_file(folder / "r.json"));
}

TEST_CASE("a pipe with a reader takes the record") {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  CHECK(run_bench(with(brief, {"--csv", pipe.string()})).code == 0);
  char text[16] = {};
  CHECK(read(reader, text, sizeof text) == sizeof text);
  close(reader);
  CHECK(folder.names() == std::set<std::string>{"pipe"});
}

TEST_CASE("a reader that has seen enough ends the program without a word") {
  const auto leave = [] {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) _exit(125);
    close(ends[0]), close(ends[1]);
  };
  const Ended ended = run_bench({"info"}, {.prepare = leave});
  CHECK(ended.signal == SIGPIPE);
  CHECK(ended.err == "");
}

TEST_CASE("a run that diverges names the first tensor that is not finite, and no sign of a nan") {
  for (const char* rate : {"1000"}) {
    const Fault fault = {.name = rate,
                         .arguments = with(endless, {"--optimizer", "sgd", "--lr", rate}),
                         .exit_code = 6,
                         .line = "first tensor that is not finite: "};
    check_fault(fault);
    CHECK_FALSE(contains(run_bench(fault.arguments).err, "-nan"));
  }
}

TEST_CASE("the page about the command line lists the exit codes of the program") {
  const std::string page = read_text(HALFSTEP_SOURCE_DIR "/docs/command_line.md");
  for (const hs::ExitCodeRow& row : hs::exit_code_table) {
    CAPTURE(row.meaning);
    CHECK(contains(page, "| " + std::to_string(static_cast<int>(row.code)) + " | " + row.meaning + " |\n"));
  }
}

TEST_CASE("no record of changed sources goes to bench/results") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "bench/results/cpu");
  fs::create_directory_symlink("bench/results/cpu", folder / "link");
  const auto refused = [&](const std::string& path, const std::string& commit) {
    try {
      hs::bench::report::check_record_is_clean(folder / path, commit);
      return false;
    } catch (const hs::Error& error) {
      CHECK(error.code() == hs::ExitCode::usage);
      CHECK(contains(error.what(), "--allow-dirty"));
      return true;
    }
  };
  for (const char* path : {"bench/results/r.json", "bench/results/cpu/r.json", "bench/results/new/r.json",
                           "link/r.json", "bench/../bench/./results/r.json"}) {
    CAPTURE(path);
    CHECK(refused(path, "0123456789ab-dirty"));
    CHECK_FALSE(refused(path, "0123456789ab"));
    CHECK_FALSE(refused(path, "unknown"));
  }
  for (const char* path : {"r.json", "bench/r.json", "results/r.json", "bench/results.json", "results/bench/r.json"}) {
    CAPTURE(path);
    CHECK_FALSE(refused(path, "0123456789ab-dirty"));
  }
}

}  // namespace
