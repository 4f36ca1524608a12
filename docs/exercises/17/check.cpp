// tests/exercise 17 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "docs/exercises/17/exercise.h"
#include "docs/exercises/clock.h"
#include "docs/exercises/vectors.h"

using namespace std::chrono_literals;

namespace {

// A queue whose calls the clock knows.
struct Queue {
  explicit Queue(int64_t slots) : queue(slots) {}
  bool put(int64_t index, const std::string& item) {
    return clock.during("put(" + std::to_string(index) + ")", [&] { return queue.put(index, item); });
  }
  bool fail(int64_t index, const std::exception_ptr& error) {
    return clock.during("fail(" + std::to_string(index) + ")", [&] { return queue.fail(index, error); });
  }
  std::optional<std::string> take() {
    return clock.during("take() of item " + std::to_string(taken++), [&] { return queue.take(); });
  }
  void close() {
    clock.during("close()", [&] { queue.close(); });
  }

  exercise::OrderedQueue queue;
  int64_t taken = 0;
  Clock clock;
};

// Runs `work` on a thread of its own. doctest's checks are made on the main thread alone.
template <class Work>
std::future<bool> start(Work work) {
  return std::async(std::launch::async, std::move(work));
}
bool finished(const std::future<bool>& call, std::chrono::milliseconds within) {
  return call.wait_for(within) == std::future_status::ready;
}

}  // namespace

TEST_CASE("every item once and in order, from four workers") {
  for (const int64_t slots : {1, 2, 5}) {
    INFO(slots, " slots");
    Queue queue(slots);
    std::atomic<int64_t> next = 0;
    std::vector<std::future<bool>> workers;
    workers.reserve(4);
    for (int worker = 0; worker < 4; ++worker) {
      workers.push_back(start([&] {
        for (int64_t index; (index = next++) < 2000;) {
          if (index % 7 == 0) std::this_thread::yield();
          if (!queue.put(index, std::to_string(index))) return false;
        }
        return true;
      }));
    }
    bool in_order = true;
    for (int64_t index = 0; index < 2000; ++index) in_order &= queue.take() == std::to_string(index);
    CHECK(in_order);
    for (auto& worker : workers) CHECK(worker.get());
  }
}

TEST_CASE("the bound counts from the next item, not from how many are there") {
  Queue queue(2);
  CHECK(queue.put(1, "one"));
  auto two = start([&] { return queue.put(2, "two"); });
  CHECK_MESSAGE(!finished(two, 50ms), "item 2 is put while item 0 is missing and there are two slots");
  auto zero = start([&] { return queue.put(0, "zero"); });
  CHECK_MESSAGE(finished(zero, 1s), "item 0 waits, although it is the next one");
  CHECK(queue.take() == "zero");
  CHECK_MESSAGE(finished(two, 1s), "item 2 still waits after item 0 was taken");
  CHECK(queue.take() == "one");
  CHECK(queue.take() == "two");
  queue.close();
}

TEST_CASE("an exception crosses in its place, and the queue goes on") {
  Queue queue(4);
  CHECK(queue.fail(1, std::make_exception_ptr(std::runtime_error("sample 1 is damaged"))));
  CHECK(queue.put(2, "two"));
  CHECK(queue.put(0, "zero"));
  CHECK(queue.take() == "zero");
  CHECK_THROWS_WITH_AS(queue.take(), "sample 1 is damaged", std::runtime_error);
  CHECK(queue.take() == "two");
}

TEST_CASE("close ends all waiting and drops what is left") {
  Queue queue(1);
  auto taking = start([&] { return queue.take().has_value(); });
  auto putting = start([&] { return queue.put(5, "five"); });
  CHECK_MESSAGE(!finished(taking, 50ms), "take() does not wait");
  queue.close();
  queue.close();
  CHECK_MESSAGE(finished(taking, 1s), "take() still waits after close()");
  CHECK_MESSAGE(finished(putting, 1s), "put() still waits after close()");
  CHECK_FALSE(taking.get());
  CHECK_FALSE(putting.get());
  CHECK_FALSE(queue.put(0, "zero"));
  CHECK_FALSE(queue.take().has_value());
}

TEST_CASE("waiting uses no CPU time") {
  Queue queue(1);
  auto taking = start([&] { return queue.take().has_value(); });
  auto putting = start([&] { return queue.put(1, "one"); });
  const std::clock_t begin = std::clock();
  std::this_thread::sleep_for(200ms);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK_MESSAGE(seconds < 0.05, "CPU seconds, while two threads waited for 0.2 s: ", seconds);
  queue.close();
}
