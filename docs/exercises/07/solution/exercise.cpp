#include "docs/exercises/07/exercise.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace exercise {
namespace {

// What both threads know. Batches are filled in order and used in order, so two counts say the state of both slots.
struct Ring {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t filled = 0, used = 0;  // batches
  bool stopped = false;
  std::exception_ptr error;  // fill's

  template <class Change>
  void update(const Change& change) {
    {
      const std::lock_guard lock(mutex);
      change();
    }
    changed.notify_all();
  }
  // False if there is nothing more to fill.
  bool wait_for_slot(int64_t batch) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stopped || batch < used + 2; });
    return !stopped;
  }
  void wait_for_batch(int64_t batch) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return batch < filled || error; });
    if (batch == filled) std::rethrow_exception(error);
  }
};

void load(Ring& ring, int64_t batches, const SlotWork& fill) {
  try {
    for (int64_t batch = 0; batch < batches && ring.wait_for_slot(batch); ++batch) {
      fill(batch, static_cast<int>(batch % 2));
      ring.update([&] { ++ring.filled; });
    }
  } catch (...) {
    ring.update([&] { ring.error = std::current_exception(); });
  }
}

}  // namespace

void run(int64_t batches, const SlotWork& fill, const SlotWork& use) {
  Ring ring;
  const std::jthread loader([&] { load(ring, batches, fill); });
  // Destroyed before the thread is joined, also if use throws: a loader that waits for a slot must wake up.
  const struct Stop {
    Ring& ring;
    ~Stop() {
      ring.update([this] { ring.stopped = true; });
    }
  } stop{ring};
  for (int64_t batch = 0; batch < batches; ++batch) {
    ring.wait_for_batch(batch);
    use(batch, static_cast<int>(batch % 2));
    ring.update([&] { ++ring.used; });
  }
}

}  // namespace exercise
