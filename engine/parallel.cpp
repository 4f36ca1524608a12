#include "engine/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/check.h"

namespace hs {
namespace {

int chosen = 0;

#ifdef _OPENMP
std::atomic<int> started = 1;

// OpenMP aborts the program if it cannot start a thread. So this first starts that many threads, all alive at once,
// where a failure can be reported; OpenMP's own threads then find the same resources, and persist.
void start(int count) {
  static std::mutex one_caller;
  const std::scoped_lock only(one_caller);
  if (count <= started) return;
  std::mutex mutex;
  std::condition_variable changed;
  bool all_tried = false;
  std::vector<std::thread> trial;
  trial.reserve(static_cast<size_t>(count));
  std::string why;
  try {
    while (static_cast<int>(trial.size()) < count - 1) {
      trial.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return all_tried; });
      });
    }
  } catch (const std::system_error& error) {
    why = error.code().message();
  }
  {
    const std::scoped_lock lock(mutex);
    all_tried = true;
  }
  changed.notify_all();
  for (std::thread& thread : trial) thread.join();
  if (!why.empty()) {
    fail(ExitCode::out_of_memory, "threads {}: only {} threads can be started: {}; give fewer, or raise `ulimit -u`",
         count, trial.size() + 1, why);
  }
  std::atomic<int> in_team = 0;
#pragma omp parallel num_threads(count)
  ++in_team;
  started = count;
}
#endif

}  // namespace

void set_threads(int count) { chosen = count; }

int threads() {
#ifdef _OPENMP
  static const int cores = std::max(1, static_cast<int>(omp_get_num_procs()));
  const int count = chosen > 0 ? chosen : cores;
  if (count > started.load(std::memory_order_relaxed)) start(count);
  return count;
#else
  return 1;
#endif
}

}  // namespace hs
