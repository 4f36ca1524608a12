// tests/exercise 07 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "docs/exercises/07/exercise.h"
#include "docs/exercises/clock.h"
#include "docs/exercises/vectors.h"

namespace {

// Two slots that notice who is in them. doctest's checks are made on the calling thread alone.
struct Slots {
  std::array<std::atomic<int>, 2> busy{};               // fills and uses that are in the slot now
  std::array<std::atomic<int64_t>, 2> content{-1, -1};  // the batch
  std::atomic<int> clashes = 0, misplaced = 0, running = 0;
  std::atomic<int64_t> filled = 0;
  std::atomic<std::thread::id> filler;
  Clock clock;

  void enter(int64_t batch, int slot) {
    ++running;
    misplaced += slot != batch % 2;
    clashes += busy.at(static_cast<size_t>(slot))++ != 0;
  }
  void leave(int slot) {
    --busy.at(static_cast<size_t>(slot));
    --running;
  }
  void fill(int64_t batch, int slot) {
    enter(batch, slot);
    filler = std::this_thread::get_id();
    misplaced += batch != filled;
    content.at(static_cast<size_t>(slot)) = batch;
    ++filled;
    leave(slot);
  }
  // Returns the batch that the slot had from the begin of the use to its end, or -1.
  int64_t use(int64_t batch, int slot, const std::function<void()>& work) {
    enter(batch, slot);
    const int64_t begin = content.at(static_cast<size_t>(slot));
    work();
    const int64_t end = content.at(static_cast<size_t>(slot));
    leave(slot);
    return begin == end ? begin : -1;
  }
  exercise::SlotWork filling() {
    return [this](int64_t batch, int slot) {
      clock.during("fill(" + std::to_string(batch) + ")", [&] { fill(batch, slot); });
    };
  }
  void run(int64_t batches, const exercise::SlotWork& fill, const exercise::SlotWork& use) {
    clock.during("run()", [&] { exercise::run(batches, fill, use); });
  }
};

void wait_a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

TEST_CASE("each batch once, in order, whole") {
  for (const int64_t batches : {0, 1, 2, 3, 1000}) {
    INFO(batches, " batches");
    Slots slots;
    int64_t expected = 0, wrong = 0;
    slots.run(batches, slots.filling(), [&](int64_t batch, int slot) {
      const int64_t seen = slots.use(batch, slot, [&] {
        if (batch % 7 == 0) std::this_thread::yield();
      });
      wrong += batch != expected++ || seen != batch;
    });
    CHECK(wrong == 0);
    CHECK(expected == batches);
    CHECK(slots.filled == batches);
    CHECK(slots.clashes == 0);
    CHECK(slots.misplaced == 0);
  }
}

TEST_CASE("the next batch is filled while one is used, and the one after it is not") {
  Slots slots;
  slots.run(20, slots.filling(), [&](int64_t batch, int slot) {
    REQUIRE_MESSAGE(slots.filler.load() != std::this_thread::get_id(), "fill runs on the thread that trains");
    const int64_t ahead = std::min<int64_t>(batch + 2, 20);
    const int64_t seen = slots.use(batch, slot, [&] {
      for (int wait = 0; slots.filled < ahead && wait < 1000; ++wait) wait_a_moment();
      for (int wait = 0; wait < 5; ++wait) wait_a_moment();  // time for a fill that should not begin
    });
    REQUIRE(slots.filled == ahead);
    REQUIRE(seen == batch);
  });
  CHECK(slots.clashes == 0);
}

TEST_CASE("fill throws: what was filled before is used") {
  for (const int64_t bad : {0, 1, 3}) {
    INFO("batch ", bad);
    Slots slots;
    int64_t used = 0;
    const auto fill = [&](int64_t batch, int slot) {
      if (batch == bad) throw std::runtime_error("damaged");
      slots.fill(batch, slot);
    };
    CHECK_THROWS_WITH_AS(slots.run(10, fill, [&](int64_t, int) { ++used; }), "damaged", std::runtime_error);
    CHECK(used == bad);
    CHECK(slots.filled == bad);
  }
}

TEST_CASE("use throws: at most the next batch is filled, and the thread has ended") {
  Slots slots;
  const auto use = [&](int64_t batch, int) {
    if (batch == 1) {
      for (int wait = 0; slots.filled < 3 && wait < 100; ++wait) wait_a_moment();  // now the loader waits for this slot
      throw std::runtime_error("no more");
    }
  };
  CHECK_THROWS_WITH_AS(slots.run(1000, slots.filling(), use), "no more", std::runtime_error);
  const int64_t filled = slots.filled;
  CHECK(filled <= 3);
  CHECK(slots.running == 0);
  wait_a_moment();
  CHECK(slots.filled == filled);
}
