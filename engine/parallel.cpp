// The threads of parallel(): one team, started once, that waits for loops.
//
// A loop is divided into one share of neighbouring pieces per thread, the same for every loop of a shape: what a thread
// wrote in one loop is in its cache in the next. A thread that has finished its share takes what others have left of
// theirs. So a loop never waits for a thread that has yet to wake up, or that the system has taken off its core: the
// others do its work, and only pieces in progress are waited for.
//
// Waking a sleeping thread takes longer than most loops. A thread that runs out of work therefore first spins for about
// the time of the serial code between two loops; if it has no core of its own, it sleeps at once.
#include "engine/parallel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/check.h"
#include "engine/cpu_features.h"
#include "engine/memory_limit.h"

namespace hs {
namespace {

int count_cores() {
  cpu_set_t allowed;
  int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) count = CPU_COUNT(&allowed);  // fails if there are too many
  const double quota = cpu_quota("/");
  return quota > 0 ? std::min(count, static_cast<int>(std::ceil(std::min(quota, 1e9)))) : count;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Longer than the serial code between two loops of a step; short enough to waste little where other programs run.
constexpr std::chrono::microseconds spin_time{100};

// Waits until `variable` is not `value`, and returns what it is then: spins for a while if `spin`, then sleeps.
uint32_t wait_while(const std::atomic<uint32_t>& variable, uint32_t value, bool spin) {
  const auto start = std::chrono::steady_clock::now();
  while (spin) {
    for (int i = 0; i < 20; ++i) {
      const uint32_t now = variable.load(std::memory_order_acquire);
      if (now != value) return now;
      pause();
    }
    spin = std::chrono::steady_clock::now() - start < spin_time;
  }
  variable.wait(value, std::memory_order_acquire);
  return variable.load(std::memory_order_acquire);
}

class Team {
 public:
  int size() const { return static_cast<int>(started_.load(std::memory_order_acquire)); }

  void start(int count) {
    const std::scoped_lock only(one_loop_);
    if (count <= size()) return;
    cpu_features();  // throws on a wrong HALFSTEP_ISA here, and not in a kernel's thread
    shares_ = std::make_unique<Share[]>(static_cast<size_t>(count));
    while (size() < count) {
      try {
        // Never joined: they sleep when the program ends, and a process that was forked from this one has none.
        std::thread([this, thread = size()] { work(thread); }).detach();
      } catch (const std::system_error& error) {
        fail(ExitCode::out_of_memory,
             "threads {}: only {} threads can be started: {}; give fewer, or raise `ulimit -u`", count, size(),
             error.code().message());
      }
      started_.fetch_add(1, std::memory_order_release);
    }
  }

  void run(int64_t pieces, RunPiece run, const void* body, int count) {
    const std::unique_lock only(one_loop_, std::try_to_lock);
    if (inside_ || !only) {
      for (int64_t piece = 0; piece < pieces; ++piece) run(body, piece, 0);
      return;
    }
    // Few enough claims to cost nothing, small enough that at the end nobody waits long for the last of them.
    threads_ = static_cast<int>(std::min<int64_t>(count, pieces));
    pieces_per_claim_ = std::max<int64_t>(1, pieces / (16 * threads_));
    run_ = run;
    body_ = body;
    for (int i = 0; i < threads_; ++i) {
      shares_[i].end = pieces * (i + 1) / threads_;
      shares_[i].next.store(pieces * i / threads_, std::memory_order_relaxed);
    }
    spin_ = count <= cores();
    state_.fetch_add(1);  // open
    state_.notify_all();
    run_shares(0);
    state_.fetch_add(1);  // closed: who is inside may finish, and nobody enters any more
    while (const uint32_t inside = members_.load()) wait_while(members_, inside, spin_);
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };

  // The thread's own share first, then the others.
  void run_shares(int thread) {
    inside_ = true;
    for (int i = 0; i < threads_; ++i) {
      Share& share = shares_[(thread + i) % threads_];
      while (share.next.load(std::memory_order_relaxed) < share.end) {
        const int64_t begin = share.next.fetch_add(pieces_per_claim_, std::memory_order_relaxed);
        const int64_t end = std::min(begin + pieces_per_claim_, share.end);
        for (int64_t piece = begin; piece < end; ++piece) run_(body_, piece, thread);
      }
    }
    inside_ = false;
  }

  // The loop of thread 1 and up.
  void work(int thread) {
    uint32_t seen = 0;
    while (true) {
      seen = wait_while(state_, seen, spin_.load(std::memory_order_relaxed));
      if (seen % 2 == 0) continue;
      members_.fetch_add(1);
      if ((seen = state_.load()) % 2 == 1 && thread < threads_) run_shares(thread);
      if (members_.fetch_sub(1) == 1) members_.notify_one();
    }
  }

  static inline thread_local bool inside_ = false;  // of a body

  std::mutex one_loop_;
  std::atomic<int> started_ = 1;  // threads, the caller included
  // Odd while a loop is open. A thread may read the loop's description if it is odd after it has become a member; the
  // description changes only while it is even and there are no members.
  std::atomic<uint32_t> state_ = 0;
  std::atomic<uint32_t> members_ = 0;
  std::atomic<bool> spin_ = false;
  // The loop.
  int threads_ = 1;
  int64_t pieces_per_claim_ = 1;
  RunPiece run_ = nullptr;
  const void* body_ = nullptr;
  std::unique_ptr<Share[]> shares_;  // one for each thread
};

Team& team() {
  static Team& team = *new Team;  // its threads live as long as the program
  return team;
}

int chosen = 0;

}  // namespace

int cores() {
  static const int count = count_cores();
  return count;
}

namespace {

// Calls `read` with the folder of each control group that this process is in, and whether it is of version 2. A group's
// limit holds for those within it, too. In a container the path may be that outside of it, where nothing is.
void for_each_group(const std::filesystem::path& root, const std::string& controller,
                    const std::function<void(const std::filesystem::path& at, bool is_v2)>& read) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/a/b" in version 2, "4:cpu,cpuacct:/a/b" in version 1
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = std::string(",").append(line, first + 1, second - first - 1).append(",");
    const bool is_v2 = controllers == ",,";
    if (!is_v2 && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::filesystem::path top = root / "sys/fs/cgroup" / (is_v2 ? "" : controller);
    for (std::filesystem::path group = line.substr(second + 1);; group = group.parent_path()) {
      read(top / group.relative_path(), is_v2);
      if (!group.has_relative_path()) break;
    }
  }
}

}  // namespace

double cpu_quota(const char* root) {
  double least = 0;
  for_each_group(root, "cpu", [&](const std::filesystem::path& at, bool is_v2) {
    double quota = 0, period = 0;  // a quota of "max" is not read, one of -1 is none
    if (is_v2) {
      std::ifstream(at / "cpu.max") >> quota >> period;
    } else {
      std::ifstream(at / "cpu.cfs_quota_us") >> quota;
      std::ifstream(at / "cpu.cfs_period_us") >> period;
    }
    if (quota > 0 && period > 0) least = least > 0 ? std::min(least, quota / period) : quota / period;
  });
  return least;
}

int64_t memory_limit(const char* root) {
  int64_t least = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  for_each_group(root, "memory", [&](const std::filesystem::path& at, bool is_v2) {
    int64_t limit = 0;  // "max" is not read, none is a huge number in version 1
    std::ifstream(at / (is_v2 ? "memory.max" : "memory.limit_in_bytes")) >> limit;
    if (limit > 0) least = std::min(least, limit);
  });
  return least;
}

void set_threads(int count) { chosen = count; }

int threads() {
  const int count = chosen > 0 ? chosen : cores();
  if (count > team().size()) team().start(count);
  return count;
}

void run_on_threads(int64_t pieces, RunPiece run, const void* body) noexcept {
  team().run(pieces, run, body, threads());
}

}  // namespace hs
