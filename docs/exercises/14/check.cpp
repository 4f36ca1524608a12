// tests/exercise 14 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "docs/exercises/14/exercise.h"
#include "docs/exercises/clock.h"
#include "docs/exercises/vectors.h"

using namespace std::chrono_literals;
using Sums = std::vector<std::vector<float>>;

namespace {

// What all-reduces have run, in order. Each doubles its values, as if another rank had the same.
class Log {
 public:
  std::function<void()> during = [] {};  // runs within each all-reduce
  Clock clock;

  exercise::AllReduce all_reduce() {
    return [this](size_t bucket, std::span<float> values) {
      {
        const std::lock_guard lock(mutex_);
        begun_.push_back(bucket);
        contents_.emplace_back(values.begin(), values.end());
        threads_.push_back(std::this_thread::get_id());
        changed_.notify_all();
      }
      clock.during("all-reduce " + std::to_string(bucket), during);
      for (float& value : values) value *= 2;
    };
  }
  // True once `count` all-reduces have begun; false if that takes longer.
  bool begun(size_t count, std::chrono::milliseconds within) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, within, [&] { return begun_.size() >= count; });
  }
  std::vector<size_t> order() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  Sums contents() {
    const std::lock_guard lock(mutex_);
    return contents_;
  }
  bool on_one_other_thread() {
    const std::lock_guard lock(mutex_);
    for (const auto id : threads_) {
      if (id != threads_[0] || id == std::this_thread::get_id()) return false;
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> begun_;
  Sums contents_;
  std::vector<std::thread::id> threads_;
};

// Buckets whose calls the clock knows.
struct Buckets {
  Buckets(const std::vector<size_t>& sizes, size_t capacity, Log& log)
      : clock(log.clock), buckets(new exercise::Buckets(sizes, capacity, log.all_reduce())) {}
  ~Buckets() {
    clock.during("the destructor", [&] { buckets.reset(); });
  }
  void ready(size_t parameter, std::span<const float> gradient) {
    clock.during("ready(" + std::to_string(parameter) + ")", [&] { buckets->ready(parameter, gradient); });
  }
  Sums wait() {
    return clock.during("wait()", [&] { return buckets->wait(); });
  }

  Clock& clock;
  std::unique_ptr<exercise::Buckets> buckets;
};

const std::vector<size_t> sizes = {2, 1, 3, 1};  // with a capacity of 3: buckets {3, 2}, {1, 0}
const Sums gradients = {{1, 2}, {3}, {4, 5, 6}, {7}}, doubled = {{2, 4}, {6}, {8, 10, 12}, {14}};

}  // namespace

TEST_CASE("what is in which bucket, and the sums of several steps") {
  Log log;
  Buckets buckets(sizes, 3, log);
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 4; i-- > 0;) buckets.ready(i, gradients[i]);
    CHECK(buckets.wait() == doubled);
  }
  CHECK(log.order() == std::vector<size_t>{0, 1, 0, 1, 0, 1});
  REQUIRE(log.contents().size() == 6);
  CHECK(log.contents()[0] == std::vector<float>{7, 4, 5, 6});
  CHECK(log.contents()[1] == std::vector<float>{3, 1, 2});
  CHECK(log.on_one_other_thread());
}

TEST_CASE("a bucket leaves while backward runs, and ready() does not wait for it") {
  Log log;
  std::mutex backward;
  log.during = [&] { const std::lock_guard until_backward_has_ended(backward); };
  Buckets buckets(sizes, 3, log);
  {
    const std::lock_guard running(backward);
    buckets.ready(3, gradients[3]);
    CHECK_MESSAGE(log.order().empty(), "bucket 0 has left before it was complete");
    buckets.ready(2, gradients[2]);
    CHECK_MESSAGE(log.begun(1, 1s), "bucket 0 is complete and does not leave");
    buckets.ready(1, gradients[1]);
    buckets.ready(0, gradients[0]);
    CHECK_MESSAGE(log.order().size() <= 1, "an all-reduce has begun while another one runs");
  }
  CHECK(buckets.wait() == doubled);
}

TEST_CASE("a bucket that is complete too early waits for those before it") {
  Log log;
  Buckets buckets({1, 1, 1, 1}, 1, log);
  for (const size_t parameter : {0, 2, 1}) buckets.ready(parameter, std::vector<float>{1});
  CHECK_MESSAGE(!log.begun(1, 50ms), "a bucket has left before bucket 0");
  buckets.ready(3, std::vector<float>{1});
  CHECK(buckets.wait() == Sums(4, {2}));
  CHECK(log.order() == std::vector<size_t>{0, 1, 2, 3});
}

TEST_CASE("a parameter that is not used has a gradient of 0 and is sent, without the numbers of the step before") {
  Log log;
  Buckets buckets(sizes, 3, log);
  for (size_t i = 0; i < 4; ++i) buckets.ready(i, gradients[i]);
  buckets.wait();
  buckets.ready(1, gradients[1]);
  CHECK(buckets.wait() == Sums{{0, 0}, {6}, {0, 0, 0}, {0}});
  CHECK(log.order() == std::vector<size_t>{0, 1, 0, 1});
}

TEST_CASE("an exception reaches wait(), and the next step begins empty") {
  Log log;
  std::atomic<bool> broken = true;
  log.during = [&] {
    if (broken) throw std::runtime_error("rank 3 has ended");
  };
  Buckets buckets(sizes, 3, log);
  for (size_t i = 4; i-- > 0;) buckets.ready(i, gradients[i]);
  CHECK_THROWS_WITH_AS(buckets.wait(), "rank 3 has ended", std::runtime_error);
  CHECK(log.order() == std::vector<size_t>{0});
  broken = false;
  buckets.ready(0, gradients[0]);
  CHECK(buckets.wait() == Sums{{2, 4}, {0}, {0, 0, 0}, {0}});
}

TEST_CASE("destroyed in the middle of a step") {
  Log log;
  Buckets(sizes, 3, log).ready(3, gradients[3]);
  CHECK(log.order().empty());
}
