// The loader on the CPU: the same batches whatever the threads do, no wrong sample under any delay, failures, resuming.
#include <fmt/format.h>

#include <deque>
#include <optional>
#include <thread>

#include "data/io/memory_source.h"
#include "data/synthetic.h"
#include "engine/storage.h"
#include "tests/support/child_process.h"
#include "tests/support/loader_sets.h"
#include "tests/support/sanitized.h"
#include "tests/support/thrown.h"

namespace {

using namespace hs;
using namespace hs::test;

size_t threads_of_this_process() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST_CASE("slow or fast, producers and consumers never see a wrong sample") {
  const SampleInfo info = info_for(101);
  for (const bool slow_producer : {false, true}) {
    for (const bool slow_consumer : {false, true}) {
      for (const int64_t workers : {1, 3}) {
        RandomDelay producer_delay(1), consumer_delay(2);
        const TestSource source(info, [&](int64_t) {
          if (slow_producer) producer_delay();
        });
        const LoaderOptions options{.batch = 3, .prefetch = 3, .workers = workers};
        Loader loader(source, options);
        // Up to six batches are kept, looked at when the loader has gone on, and dropped in no particular order.
        std::deque<std::pair<Batch, HostBatch>> kept;
        int wrong = 0;
        for (int i = 0; i < 300; ++i) {
          const HostBatch expected = expected_batch(info, loader.epoch(), loader.position(), options);
          kept.emplace_back(loader.next(), expected);
          if (slow_consumer) consumer_delay();
          if (i % 7 < 3 && kept.size() < 6) continue;
          const auto one = kept.begin() + i * 5 % static_cast<int>(kept.size());
          wrong += on_host(one->first) != one->second;
          kept.erase(one);
        }
        for (const auto& [batch, expected] : kept) wrong += on_host(batch) != expected;
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("a batch stays what it is for as long as one of its tensors lives, after the loader too") {
  const SampleInfo info = info_for(20);
  const TestSource source(info);
  const LoaderOptions options{.batch = 4, .prefetch = 1, .workers = 1};
  std::vector<Tensor> labels;
  std::vector<std::vector<int32_t>> expected;
  {
    Loader loader(source, options);
    for (int i = 0; i < 10; ++i) {
      expected.push_back(expected_batch(info, loader.epoch(), loader.position(), options).labels);
      labels.push_back(loader.next().labels);
    }
  }
  for (size_t i = 0; i < labels.size(); ++i) CHECK(labels[i].to_vector<int32_t>() == expected[i]);
}

TEST_CASE("as many slots as batches ahead, in the caller's hands, and one more") {
  const TestSource source(info_for(64, {16, 16, 1}));
  for (const int64_t prefetch : {0, 1, 4}) {
    const size_t before = memory_stats(Device::cpu).allocations;
    Loader loader(source, {.batch = 8, .prefetch = prefetch, .workers = 2});
    for (int i = 0; i < 100; ++i) const Batch dropped = loader.next();
    CHECK(memory_stats(Device::cpu).allocations - before == static_cast<size_t>(prefetch) + 1);
    Batch kept = loader.next();
    for (int i = 0; i < 100; ++i) kept = loader.next();
    CHECK(memory_stats(Device::cpu).allocations - before == static_cast<size_t>(prefetch) + 2);
  }
}

TEST_CASE("automatic workers: batches are built ahead unless they are only copied") {
  const TestSource elsewhere(info_for(64, {16, 16, 1}));
  const MemorySource in_memory = load_samples(elsewhere);
  const auto slots = [](const SampleSource& source, bool normalize_on_host) {
    const size_t before = memory_stats(Device::cpu).allocations;
    Loader loader(source, {.batch = 8,
                           .prefetch = 2,
                           .workers = automatic_workers,
                           .cache = CacheMode::ram,
                           .normalize_on_host = normalize_on_host});
    for (int i = 0; i < 20; ++i) (void)loader.next();
    return memory_stats(Device::cpu).allocations - before;
  };
  CHECK(slots(elsewhere, false) == 3);
  CHECK(slots(in_memory, false) == 1);
  CHECK(slots(in_memory, true) == 3);
}

TEST_CASE("resuming at any position of any epoch") {
  const SampleInfo info = info_for(11);
  const TestSource source(info);
  for (const int64_t workers : {0, 2}) {
    const LoaderOptions options{.batch = 3, .seed = 3, .prefetch = 2, .workers = workers};
    Loader loader(source, options);
    for (const int64_t epoch : {0, 1, 5, 1000000}) {
      for (int64_t position = 0; position < info.count; ++position) {
        loader.seek(epoch, position);
        CHECK(loader.epoch() == epoch);
        CHECK(loader.position() == position);
        CHECK(wrong_batches(loader, info, options, 5) == 0);
      }
    }
    CHECK(error_of([&] { loader.seek(0, 11); }) == "Loader: position 11 in an epoch of 11 samples");
    CHECK(error_of([&] { loader.seek(0, -1); }) == "Loader: position -1 in an epoch of 11 samples");
  }
}

TEST_CASE("--cache ram reads each sample once, whoever comes first") {
  const SampleInfo info = info_for(40);
  for (const int64_t workers : {0, 1, 5}) {
    std::vector<std::atomic<int>> reads(40);
    RandomDelay delay(3);
    const TestSource source(info, [&](int64_t sample) {
      ++reads[static_cast<size_t>(sample)];
      delay();
    });
    // Fewer samples than are prefetched: epochs overlap.
    const LoaderOptions options{.batch = 16, .prefetch = 6, .workers = workers, .cache = CacheMode::ram};
    Loader loader(source, options);
    CHECK(wrong_batches(loader, info, options, 20) == 0);
    for (const auto& count : reads) CHECK(count == 1);
  }
}

TEST_CASE("a reader that fails at sample i: the message names it, no thread is left, and the loader goes on") {
  const SampleInfo info = info_for(13);
  constexpr ExitCode codes[] = {ExitCode::io, ExitCode::internal, ExitCode::out_of_memory};
  const size_t threads_before = threads_of_this_process();
  for (const int64_t workers : {0, 1, 3}) {
    for (const int64_t prefetch : {0, 1, 4}) {
      for (const CacheMode cache : {CacheMode::none, CacheMode::ram}) {
        for (int64_t bad = 0; bad < info.count; ++bad) {
          std::atomic<bool> fails{true};
          const TestSource source(info, [&](int64_t sample) {
            if (!fails || sample != bad) return;
            if (sample % 3 == 0) throw Error(ExitCode::io, "the disk is gone");
            if (sample % 3 == 1) throw std::runtime_error("something else");
            throw std::bad_alloc();
          });
          const LoaderOptions options{.batch = 3, .seed = 5, .prefetch = prefetch, .workers = workers, .cache = cache};
          Loader loader(source, options);
          // Every batch before the bad one comes.
          int64_t position = 0;
          while (expected_sample(position, 0, info.count, options) != bad) ++position;
          CHECK(wrong_batches(loader, info, options, position / 3) == 0);
          for (int attempt = 0; attempt < 2; ++attempt) {
            const std::string message = error_of([&] { loader.next(); }, codes[bad % 3]);
            CAPTURE(message);
            CHECK(message.ends_with("(sample " + std::to_string(bad) + ")"));
            // The kernel lists a thread for a moment after it was joined, maybe even at threads_before.
            for (int i = 0; i < 1000 && threads_of_this_process() > threads_before; ++i) {
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            CHECK(threads_of_this_process() <= threads_before);
            CHECK(loader.position() == position / 3 * 3);
          }
          fails = false;
          CHECK(wrong_batches(loader, info, options, 5) == 0);
          loader.start_epoch(1);
          CHECK(wrong_batches(loader, info, options, 5) == 0);
        }
      }
    }
  }
}

TEST_CASE("a failure ends a worker that is in the middle of a slow batch") {
  const SampleInfo info = info_for(2000);
  std::atomic<int> slow_reads{0};
  const TestSource source(info, [&](int64_t sample) {
    if (sample == 0) throw Error(ExitCode::io, "the disk is gone");
    if (sample < 1000) return;
    ++slow_reads;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  Loader loader(source, {.batch = 1000, .shuffle = false, .prefetch = 1, .workers = 2});
  CHECK(error_of([&] { loader.next(); }, ExitCode::io) == "the disk is gone (sample 0)");
  CHECK(slow_reads < 1000);
}

// ThreadSanitizer knows no thread of another process, and ends where one is let go.
TEST_CASE("a loader in a forked process says that its threads are elsewhere, and ends; without threads it works" *
          doctest::skip(with_sanitizer && !with_address_sanitizer)) {
  const MemorySource source = synthetic_digits(1, 64);
  for (const int64_t workers : {2, 0}) {
    std::optional<Loader> loader(std::in_place, source, LoaderOptions{.batch = 8, .prefetch = 2, .workers = workers});
    loader->next();
    const int ended = in_child([&] {
      alarm(20);  // instead of a hang
      int code = 0;
      try {
        loader->next();
      } catch (const Error& error) {
        code = static_cast<int>(error.code());
      }
      loader.reset();
      return code;
    });
    CHECK(ended == (workers > 0 ? 2 : 0));
  }
}

TEST_CASE("made and destroyed 2,000 times at random points of an epoch") {
  const SampleInfo info = info_for(37);
  RandomDelay delay(4);
  const TestSource source(info, [&](int64_t) { delay(); });
  int wrong = 0;
  for (int i = 0; i < 2000; ++i) {
    const LoaderOptions options{.batch = 5,
                                .prefetch = 1 + i % 4,
                                .workers = 1 + i % 3,
                                .cache = i % 2 == 0 ? CacheMode::none : CacheMode::ram};
    Loader loader(source, options);
    const int64_t batches =
        static_cast<int64_t>(random_bits({1, RandomPurpose::init, 0, 0, 0}, static_cast<uint64_t>(i)) % 12);
    wrong += static_cast<int>(wrong_batches(loader, info, options, batches));
  }
  CHECK(wrong == 0);
}

TEST_CASE("each epoch has its order, for any batch size, also one that is larger than the set") {
  for (const int64_t count : {1, 2, 7, 300}) {
    const SampleInfo info = info_for(count);
    const TestSource source(info);
    for (const int64_t batch : {int64_t{1}, int64_t{3}, int64_t{7}, INT64_MAX}) {
      for (const bool shuffle : {true, false}) {
        CAPTURE(count);
        CAPTURE(batch);
        const LoaderOptions options{.batch = batch, .shuffle = shuffle, .seed = 5};
        Loader loader(source, options);
        CHECK(loader.samples() == count);
        CHECK(loader.batches_per_epoch() == 1 + (count - 1) / batch);
        CHECK(loader.pixel_scale().mean == 0.25f);
        CHECK(wrong_batches(loader, info, options, 2 * loader.batches_per_epoch()) == 0);
        CHECK(loader.epoch() == 2);
        CHECK(loader.position() == 0);
        loader.next();
        loader.start_epoch(1);
        CHECK(wrong_batches(loader, info, options, loader.batches_per_epoch()) == 0);
      }
    }
  }
}

TEST_CASE("wrong options") {
  const TestSource source(info_for(3)), empty(info_for(0));
  CHECK(error_of([&] { Loader(source, {.batch = 0}); }) == "batch size 0: expected 1 or more");
  CHECK(error_of([&] { Loader(source, {.batch = -1}); }) == "batch size -1: expected 1 or more");
  CHECK(error_of([&] { Loader(source, {.prefetch = -1}); }) == "prefetch -1: expected 0 or more");
  CHECK(error_of([&] { Loader(source, {.prefetch = 1001}); }) == "prefetch 1001: expected at most 1000");
  CHECK(error_of([&] { Loader(source, {.workers = -2}); }) == "workers -2: expected 0 or more");
  CHECK(error_of([&] { Loader(source, {.cache = CacheMode::device, .normalize_on_host = true}); }) ==
        "preprocess host: with cache device the pixels are on the device; preprocess them there");
  CHECK(error_of([&] { Loader(empty, {}); }, ExitCode::bad_input) ==
        "numbered: the set has 0 samples, expected 1 or more");
  CHECK(error_of([&] {
          MemorySource(source.info(), std::vector<uint8_t>(18), {1, 2});
        }).starts_with("MemorySource: 18 bytes"));
  Loader loader(source, {.batch = 1});
  for (const int64_t epoch : {int64_t{-1}, int64_t{1} << 32}) {
    CHECK(error_of([&] { loader.start_epoch(epoch); }) == fmt::format("Loader: epoch {} is not in 0 .. 2^32-1", epoch));
  }
}

}  // namespace
