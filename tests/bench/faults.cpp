// Faults of processes, signals, threads, outputs and resources. Those of files and flags: tests/bench/fault_table.cpp.
#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "bench/cli/interrupt.h"
#include "bench/report/outputs.h"
#include "engine/error.h"
#include "engine/files/output_file.h"
#include "engine/files/safetensors.h"
#include "engine/observe.h"
#include "engine/parallel.h"
#include "source_dir.h"
#include "tests/support/bench_faults.h"
#include "tests/support/child_process.h"

namespace {

using namespace hs::test;

const std::string training = "train --data synthetic --train 64 --test 16 --model mlp --quiet --device cpu ";
const std::string brief = training + "--epochs 1 ";
// A fault that is noticed only after it is a hang here.
const std::string endless = training + "--epochs 10000 ";

const std::string peers = "bench peers --data synthetic --quiet --peers " HALFSTEP_SOURCE_DIR "/bench/peers ";

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
  return in_child([&] {
           become_nobody();
           return access(program.c_str(), X_OK) == 0 ? 0 : 1;
         }) == 0;
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

TEST_CASE("resources that the program needs and does not get") {
  constexpr rlim_t gigabytes = rlim_t{1} << 30;
  const auto one_process = [] {
    become_nobody();
    limited(RLIMIT_NPROC, 1)();
  };
  const auto memory = limited(RLIMIT_AS, 2 * gigabytes), half = limited(RLIMIT_AS, gigabytes / 2);
  const auto little = limited(RLIMIT_FSIZE, 1024), more = limited(RLIMIT_FSIZE, 100000);
  const auto few_files = limited(RLIMIT_NOFILE, 8);
  check_faults({
      {endless + "--threads 1024", 8, "--threads 1024: only ", {}, memory},
      {endless + "--workers 256", 8, "--workers 256: only ", {}, limited(RLIMIT_AS, gigabytes)},
      {"train --data synthetic --quiet --train 20000 --batch 20000",
       8,
       "; use a smaller batch, several to a step by --accumulate, or --checkpoint budget=auto",
       {},
       half},
      {endless, 8, "ulimit -s", {}, limited(RLIMIT_STACK, 256 << 10)},
      {"data convert synthetic out --format idx --quiet", 4, "only 8 files may be open", {}, few_files},
      {"bench loader --samples 100 --quiet", 4, "only 8 files may be open", {}, few_files},
      {"bench peers", 4, "only 8 files may be open", {}, few_files},
      {"info --json r.json", 4, "--json r.json: cannot be written: File too large", {}, little},
      {"bench loader --data synthetic --quiet --samples 2000", 4, "File too large", {}, more},
  });
  // Another user's limit needs a program that other users may run.
  if (geteuid() != 0 || others_may_run(bench_program())) {
    check_fault({endless + "--threads 4", 8, "--threads 4: only 1 threads can be started", {}, one_process});
  }
}

struct Stop {
  int signal;
  int code;
  const char* line;
};
constexpr Stop stops[] = {
    {SIGINT, 130, "stopped by SIGINT "}, {SIGTERM, 143, "stopped by SIGTERM "}, {SIGHUP, 129, "stopped by SIGHUP "}};

TEST_CASE("a signal ends every command that takes long, and leaves nothing behind") {
  const std::string commands[] = {
      endless,
      "train --data synthetic --quiet --accumulate 1000 --train 60000 --json r.json",
      "train --data synthetic --quiet --accumulate 1000 --train 60000 --dry-run",
      "train --data synthetic --quiet --model deep_cnn --blocks 200 --checkpoint budget=auto",
      "techniques --data synthetic --quiet --full --html r.html",
      "bench f16 --quiet --epochs 1000",
      "bench conv --batch 512",
      "bench gemm --batch 4096",
      "bench ops --batch 4096",
      "profile kernels --data synthetic --batch 8192 --model mnist_cnn_large",
      "profile --data synthetic --steps 100000",
      "bench loader --data synthetic --quiet",
      "profile memory --quiet",
      peers + "--epochs 100",
      "data convert synthetic out --format png --quiet",
  };
  size_t row = 0;
  for (const std::string& line : commands) {
    const Stop& stop = stops[row++ % std::size(stops)];
    check_fault({.line = line,
                 .code = stop.code,
                 .part = std::string(stop.line) + (line == endless ? "after " : ""),
                 .prepare = sent_after(1, {stop.signal}),
                 .megabytes = 8000});
  }
}

// The commands above get each of them once.
TEST_CASE("every signal to stop, and another after it, leaves no temporary folder") {
  for (const Stop& stop : stops) {
    check_fault({.line = "bench loader --data synthetic --quiet",
                 .code = stop.code,
                 .part = stop.line,
                 .prepare = sent_after(1, {stop.signal, SIGINT}),
                 .megabytes = 2000});
  }
}

TEST_CASE("once the temporary paths are removed, because the program ends, no thread makes another one") {
  const TemporaryFolder folder;
  CHECK(in_child([&] {
          hs::remove_temporary_paths();
          hs::TemporaryPath late;
          return late.make_file(folder / "late") == -1 && !late.make_folder(folder.path) ? 0 : 1;
        }) == 0);
}

#ifndef __SANITIZE_ADDRESS__  // which has handlers of its own

TEST_CASE("a signal that means a bug ends with one line and exit code 70") {
  for (const auto& [signal, name] : {std::pair(SIGSEGV, "SIGSEGV"),
                                     {SIGBUS, "SIGBUS"},
                                     {SIGFPE, "SIGFPE"},
                                     {SIGILL, "SIGILL"},
                                     {SIGABRT, "SIGABRT"}}) {
    check_fault(
        {.line = "bench loader --data synthetic --quiet",
         .code = 70,
         .part = std::string("internal error: ") + name + " in no op, while running bench loader (halfstep-bench 0.",
         .prepare = sent_after(1, {signal}),
         .megabytes = 2000});
  }
}

// What a child process that watches signals writes to stderr while it does this, and its exit code.
Ended watched(const std::function<void()>& work) {
  const TemporaryFolder folder;
  const fs::path file = folder / "err";
  Ended ended;
  ended.code = in_child([&] {
    dup2(open(file.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    hs::bench::cli::watch_signals();
    hs::bench::cli::name_running_command("test");
    work();
    return 0;
  });
  ended.err = read_text(file);
  return ended;
}

// Overflows the stack in spite of optimization.
int recurse(volatile const int* depth) {
  volatile int numbers[1024] = {*depth};
  return numbers[0] == 1 ? 0 : recurse(numbers) + numbers[0];
}

TEST_CASE("a crash names the op, also from a worker, from a full stack and from an exception that nothing catches") {
  check_one_line(watched([] { std::raise(SIGBUS); }), 70, "a file that was cut while it was read does this; if none");
  volatile int zero = 0, *volatile nowhere = nullptr;
  check_one_line(watched([&] {
                   const hs::Op op("my_op");
                   hs::parallel(2, [&](int64_t piece, int) { *(piece == 1 ? nowhere : &zero) = 0; });
                 }),
                 70, "internal error: SIGSEGV in my_op, while running test (");
  check_one_line(watched([&] {
                   const hs::Op op("my_op");
                   recurse(&zero);
                 }),
                 70, "internal error: SIGSEGV in ");
  check_one_line(watched([] { std::thread([] { throw 1; }).join(); }), 70, "internal error: SIGABRT in no op");
}

#endif

TEST_CASE("peers waits for its runs though its parent ignores SIGCHLD") {
  const TemporaryFolder folder;
  Surroundings around{.folder = folder.path};
  around.prepare = [] { std::signal(SIGCHLD, SIG_IGN); };
  around.patience = 120;
  run_successfully(peers + "--train 64 --test 16 --epochs 1 --repeat 1", around);
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
  run_successfully(brief + "--json r.json --csv r.csv", around);
  CHECK(read_text(folder / "victim") == "precious");
  CHECK(fs::is_regular_file(folder / "r.json"));
}

TEST_CASE("a pipe with a reader takes the record") {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  run_successfully(brief + "--csv " + pipe.string());
  char text[16] = {};
  CHECK(read(reader, text, sizeof text) == sizeof text);
  close(reader);
  CHECK(folder.names() == std::set<std::string>{"pipe"});
}

// A pipe that nobody reads.
std::function<void()> broken_pipe(int to) {
  return [to] {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0 || dup2(ends[1], to) < 0) _exit(125);
    close(ends[0]);
    close(ends[1]);
  };
}

TEST_CASE("a reader that has seen enough ends the program without a word, and what was trained is not lost") {
  const Ended info = run_bench({"info"}, {.prepare = broken_pipe(STDOUT_FILENO)});
  CHECK(info.signal == SIGPIPE);
  CHECK(info.err == "");
  const TemporaryFolder folder;
  const auto saved = [&](const std::string& flags, const Surroundings& around) {
    const Ended ended = run_bench_line(brief + "--threads 1 --save-model m" + flags, around);
    CHECK(hs::SafetensorsFile(folder / "m").entries().size() == 4);
    fs::remove(folder / "m");
    return ended;
  };
  CHECK(saved("", {.folder = folder.path, .prepare = broken_pipe(STDOUT_FILENO)}).signal == SIGPIPE);
  CHECK(saved("", {.stdout_file = "/dev/full", .folder = folder.path}).code == 4);
  CHECK(saved("", {.folder = folder.path, .prepare = broken_pipe(STDERR_FILENO)}).code == 0);
}

TEST_CASE("odd surroundings change no bit") {
  const TemporaryFolder folder;
  const auto trained = [&](Surroundings around) {
    around.folder = folder.path;
    run_successfully(brief + "--threads 1 --save-model m", around);
    return read_text(folder / "m");
  };
  const std::string same = trained({});
  CHECK(trained({.variables = {"TZ=:Nowhere/\x01", "LC_ALL=de_DE.UTF-8", "TERM=", "HOME=", "COLUMNS=-1"}}) == same);
  const auto bare = [] {
    for (const char* name : {"TERM", "HOME", "TZ", "PATH", "TMPDIR", "LC_ALL"}) unsetenv(name);
    limited(RLIMIT_NOFILE, 16)();
  };
  CHECK(trained({.prepare = bare}) == same);
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
  for (const char* path :
       {"bench/results/r.json", "bench/results/new/r.json", "link/r.json", "bench/../bench/./results/r.json"}) {
    CAPTURE(path);
    CHECK(refused(path, "0123456789ab-dirty"));
    CHECK_FALSE(refused(path, "0123456789ab"));
    CHECK_FALSE(refused(path, "unknown"));
  }
  for (const char* path : {"bench/r.json", "results/r.json", "bench/results.json", "results/bench/r.json"}) {
    CAPTURE(path);
    CHECK_FALSE(refused(path, "0123456789ab-dirty"));
  }
}

}  // namespace
