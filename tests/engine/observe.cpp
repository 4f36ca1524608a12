// Observers: who is told what and when; and what a Profiler makes of it: how spans nest, on which row they stand, and
// the profile of a training run.
#include "engine/observe.h"

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "bench/measure/observers/profiler.h"
#include "data/loader/loader.h"
#include "data/synthetic.h"
#include "engine/storage.h"
#include "kernels/relu/relu.h"
#include "models/models.h"
#include "models/training/train.h"
#include "tests/support/profiles.h"

namespace hs::test {

using namespace bench::measure;

namespace {

std::vector<std::string> names(const std::vector<ProfileSpan>& spans) {
  std::vector<std::string> all;
  for (const ProfileSpan& span : spans) all.emplace_back(span.name);
  return all;
}

}  // namespace

TEST_CASE("ranges nest, each thread on a row of its own") {
  Profiler profiler(Device::cpu);
  {
    const Range outer("outer", 7);
    { const Range first("first"); }
    {
      const Range second("second");
      const Range inner("inner");
    }
    std::thread([] {
      name_this_thread("helper");
      const Range range("elsewhere");
    }).join();
    std::thread([] { const Range range("unnamed"); }).join();
    std::thread([] {
      name_this_thread(std::string(40, 'x'));
      const Range range("long");
    }).join();
  }
  const Profile profile = profiler.finish();
  check_nesting(profile);
  CHECK(profile.rows == std::vector<std::string>{"training", "compute", "helper", "thread 3", std::string(31, 'x')});
  const std::vector<ProfileSpan> own = spans_on(profile, "training");
  CHECK(names(own) == std::vector<std::string>{"outer", "first", "second", "inner"});
  CHECK(own[0].number == 7);
  CHECK(own[1].number == -1);
  CHECK(own[0].depth == 0);
  CHECK(own[3].depth == 2);
  CHECK(own[2].begin >= own[1].end);
  CHECK(names(spans_on(profile, "helper")) == std::vector<std::string>{"elsewhere"});
  CHECK(is_within(spans_on(profile, "helper")[0], own[0]));
  CHECK(names(spans_on(profile, "thread 3")) == std::vector<std::string>{"unnamed"});
  CHECK(profile.dropped == 0);
}

TEST_CASE("a range belongs to the profile in which it began and ended") {
  auto early = std::make_optional<Range>("early");
  std::optional<Range> late;
  {
    Profiler profiler(Device::cpu);
    early.reset();
    late.emplace("late");
    CHECK(profiler.finish().spans.empty());
  }
  Profiler next(Device::cpu);
  late.reset();
  { const Range range("own"); }
  CHECK(names(next.finish().spans) == std::vector<std::string>{"own"});
  { const Range range("after"); }
  CHECK(Profiler(Device::cpu).finish().spans.empty());
  { const Profiler unread(Device::cpu); }
  CHECK(Profiler(Device::cpu).finish().spans.empty());
}

TEST_CASE("a profile has a limit and says what it left out") {
  Profiler profiler(Device::cpu, 3);
  for (int i = 0; i < 5; ++i) const Range range("one", i);
  const Profile profile = profiler.finish();
  REQUIRE(profile.spans.size() == 3);
  CHECK(profile.spans[2].number == 2);
  CHECK(profile.dropped == 2);
}

struct CountRanges : Observer {
  explicit CountRanges(Watch watch) : Observer(Event::range, watch) {}
  void range_begins(const Range&) override { ++count; }
  std::atomic<int> count = 0;
  const Attached attached{*this};
};

TEST_CASE("an observer watches its own thread or every thread, while it is attached") {
  const CountRanges every(Observer::Watch::every_thread);
  {
    const CountRanges own(Observer::Watch::this_thread);
    { const Range range("here"); }
    std::thread([] { const Range range("elsewhere"); }).join();
    CHECK(own.count == 1);
    CHECK(Observers::wants(Event::range));
    CHECK(!Observers::wants(Event::work));
  }
  { const Range range("after"); }
  CHECK(every.count == 3);
}

TEST_CASE("there are only so many observers, and who ends makes room") {
  const bool wanted = Observers::wants(Event::range);  // by NVTX, in a CUDA build
  std::vector<std::unique_ptr<CountRanges>> most;
  const auto one_more = [&] { most.push_back(std::make_unique<CountRanges>(Observer::Watch::every_thread)); };
  CHECK_THROWS_WITH_AS(
      [&] {
        for (;;) one_more();
      }(),
      doctest::Contains("detach one"), Error);
  most.pop_back();
  one_more();
  const size_t attached = most.size();
  { const Range range("once"); }
  for (const auto& observer : most) CHECK(observer->count == 1);
  CHECK(attached >= 8);
  most.clear();
  CHECK(Observers::wants(Event::range) == wanted);
}

TEST_CASE("threads may begin and end ranges while profiles come and go") {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&stop] {
      while (!stop) {
        const Range outer("outer");
        const Range inner("inner");
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    Profiler profiler(Device::cpu, 1000);
    std::this_thread::yield();
    check_nesting(profiler.finish());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("a kernel is work of the device, with its variant, and the memory after it is known") {
  const Tensor x = Tensor::zeros({1000}, DType::f32);
  Profiler profiler(Device::cpu);
  const Tensor y = relu(x);
  const Profile profile = profiler.finish();
  const std::vector<ProfileSpan> kernels = spans_on(profile, "compute"), ops = spans_on(profile, "training");
  REQUIRE((kernels.size() == 1 && ops.size() == 1));
  CHECK(kernels[0].name == std::string("relu_forward"));
  CHECK(kernels[0].variant == std::string("simple"));
  CHECK(ops[0].name == std::string("relu"));
  CHECK(is_within(kernels[0], ops[0]));
  REQUIRE(profile.memory.size() == 2);
  const size_t activations = static_cast<size_t>(MemoryPurpose::activations);
  CHECK(profile.memory[1].live[activations] - profile.memory[0].live[activations] == 4000);
  CHECK(profile.memory[1].live == memory_stats(Device::cpu).live_by_purpose);
}

TEST_CASE("a training run shows its phases, its kernels and its loader's threads") {
  const MemorySource digits = synthetic_digits(synthetic_train_seed, 40),
                     few = synthetic_digits(synthetic_test_seed, 8);
  Loader training(digits, {.batch = 8, .prefetch = 3, .workers = 2});
  Loader test(few, {.batch = 8});
  const auto model = make_model("mlp", 1);
  ParameterArena arena(*model, Device::cpu);
  Profiler profiler(Device::cpu);
  TrainConfig config;
  config.epochs = 1;
  config.accumulate = 2;
  train(*model, arena, training, test, config);
  const Profile profile = profiler.finish();
  check_nesting(profile);

  const std::vector<ProfileSpan> host = spans_on(profile, "training");
  const std::vector<ProfileSpan> steps = spans_called(host, "step");
  REQUIRE(steps.size() == 3);
  CHECK(spans_called(host, "evaluate").size() == 1);
  for (size_t i = 0; i < steps.size(); ++i) {
    CHECK(steps[i].number == static_cast<int64_t>(i) + 1);
    std::vector<std::string> phases;
    for (const ProfileSpan& span : host) {
      if (span.depth == 1 && is_within(span, steps[i]) && span.name != std::string("read losses")) {
        phases.emplace_back(span.name);
      }
    }
    std::vector<std::string> expected = {"wait", "upload", "zero gradients"};
    for (int micro_batch = 0; micro_batch < (i < 2 ? 2 : 1); ++micro_batch) {
      expected.insert(expected.end(), {"forward", "backward"});
    }
    expected.emplace_back("update");
    CHECK(phases == expected);
  }
  const std::vector<ProfileSpan> kernels = spans_on(profile, "compute");
  CHECK(spans_called(kernels, "normalize_image_forward").size() == 6);
  for (const ProfileSpan& backward : spans_called(host, "backward")) {
    const auto inside = [&](const ProfileSpan& kernel) { return is_within(kernel, backward); };
    CHECK(std::ranges::any_of(kernels, inside));
  }

  std::multiset<int64_t> batches;
  for (const char* row : {"loader 1", "loader 2"}) {
    for (const ProfileSpan& span : spans_called(spans_on(profile, row), "fill")) batches.insert(span.number);
  }
  for (int64_t batch = 0; batch < 5; ++batch) CHECK(batches.contains(batch));
  CHECK(spans_on(profile, "copy").empty());  // on the CPU nothing is copied
}

}  // namespace hs::test
