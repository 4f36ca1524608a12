// parallel(): every piece once, whatever the number of threads, of callers and of loops within loops.
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/memory_limit.h"
#include "engine/parallel.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace hs {
namespace {

// Whether a loop runs each piece once, and never two at a time with the same thread number.
bool is_complete(int64_t pieces) {
  std::vector<int> runs(static_cast<size_t>(pieces));
  std::vector<int> inside(static_cast<size_t>(threads()));
  std::atomic<int> wrong = 0;
  parallel(pieces, [&](int64_t piece, int thread) {
    const auto place = static_cast<size_t>(thread);
    if (thread < 0 || place >= inside.size() || inside[place]++ != 0) ++wrong;
    ++runs[static_cast<size_t>(piece)];  // not atomic: ThreadSanitizer reports two threads in one place
    --inside[place];
  });
  for (const int count : runs) wrong += count != 1;
  return wrong == 0;
}

TEST_CASE("a quota of CPU time counts as so many cores: the least of the groups that the process is in") {
  const test::TemporaryFolder root;
  const auto write = [&](const char* file, const char* text) { test::write_text(root / file, text); };
  CHECK(cpu_quota(root.path.c_str()) == 0);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  CHECK(cpu_quota(root.path.c_str()) == 0);
  write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  CHECK(cpu_quota(root.path.c_str()) == 2.5);
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(cpu_quota(root.path.c_str()) == 0.5);
  write("proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/docker/0123\n1:name=systemd:/\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cpu_quota(root.path.c_str()) == 0);
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  CHECK(cpu_quota(root.path.c_str()) == 4);
  CHECK(cores() >= 1);
  const int64_t whole = memory_limit(root.path.c_str());
  write("proc/self/cgroup", "4:memory:/a\n0::/a/b\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  CHECK(memory_limit(root.path.c_str()) == whole);
  write("sys/fs/cgroup/a/memory.max", "8192\n");
  CHECK(memory_limit(root.path.c_str()) == 8192);
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n");
  CHECK(memory_limit(root.path.c_str()) == 4096);
}

TEST_CASE("every piece runs once, for any number of pieces and threads") {
  for (const int count : {1, 2, 5, 3, 8, 1, 2, 0}) {
    set_threads(count);
    CAPTURE(count);
    for (const int64_t pieces : {0, 1, 2, 3, 7, 8, 63, 64, 65, 1000}) {
      CAPTURE(pieces);
      for (int i = 0; i < 100; ++i) CHECK(is_complete(pieces));
    }
  }
}

TEST_CASE("ranges cover all elements, the last one what is left") {
  for (const int64_t size : {0, 1, 99, 100, 101, 250}) {
    std::vector<int> runs(static_cast<size_t>(size));
    parallel_ranges(size, 100, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
    });
    for (const int count : runs) CHECK(count == 1);
  }
}

TEST_CASE("a loop that follows another one sees what all of its pieces wrote") {
  set_threads(4);
  std::vector<int64_t> values(100, 0), next(100);
  for (int loop = 0; loop < 2000; ++loop) {
    parallel(100, [&](int64_t piece, int) {
      const auto i = static_cast<size_t>(piece);
      next[i] = values[99 - i] + 1;  // another thread's, mostly
    });
    values.swap(next);
    if (loop % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the threads fall asleep
  }
  for (const int64_t value : values) CHECK(value == 2000);
  set_threads(0);
}

TEST_CASE("a loop within a loop, and loops of several callers at a time") {
  set_threads(3);
  std::atomic<int> inner = 0, wrong = 0;
  parallel(20, [&](int64_t, int) {
    const std::thread::id outer = std::this_thread::get_id();
    parallel(10, [&](int64_t, int thread) {
      ++inner;
      wrong += thread != 0 || std::this_thread::get_id() != outer;
    });
  });
  CHECK(inner == 200);
  CHECK(wrong == 0);

  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 300; ++i) wrong += !is_complete(50);
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
  set_threads(0);
}

TEST_CASE("a loop ends after its last piece, whoever runs it") {
  using std::chrono::steady_clock;
  set_threads(2);
  const auto caller = std::this_thread::get_id();
  const auto give_up = steady_clock::now() + std::chrono::seconds(10);  // if the second thread does not come at all
  static std::atomic<int> entered, left;  // static: a loop that ends too early outlives it
  entered = left = 0;
  parallel(64, [&](int64_t, int) {
    if (std::this_thread::get_id() == caller) {
      while (entered == 0 && steady_clock::now() < give_up) std::this_thread::yield();
    } else {
      ++entered;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++left;
    }
  });
  CHECK(left == entered);
  set_threads(0);
}

TEST_CASE("a thread that is late costs nothing: the others take its share") {
  set_threads(2);
  // The second thread, if it comes at all, stays in its first piece until all others are done.
  std::atomic<int> done = 0;
  const auto caller = std::this_thread::get_id();
  parallel(64, [&](int64_t, int) {
    while (std::this_thread::get_id() != caller && done < 60) std::this_thread::yield();
    ++done;
  });
  CHECK(done == 64);
  set_threads(0);
}

#if !defined(__SANITIZE_THREAD__)  // which does not let a process with threads fork and go on

TEST_CASE("a forked process has none of the threads and runs its loops all the same") {
  set_threads(4);
  CHECK(is_complete(100));
  CHECK(test::in_child([] { return is_complete(100) ? 0 : 1; }) == 0);
  set_threads(0);
}

#endif

}  // namespace
}  // namespace hs
