// What memory is for: purposes of storages, live and peak by purpose, what an observer is told, on a model's step.
#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <thread>

#include "engine/autograd.h"
#include "engine/error.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "models/models.h"

namespace hs::test {

namespace {

BytesByPurpose live() { return memory_stats(Device::cpu).live_by_purpose; }
size_t of(const BytesByPurpose& bytes, MemoryPurpose purpose) { return bytes[static_cast<size_t>(purpose)]; }
size_t total(const BytesByPurpose& bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

// Live bytes of one purpose since `before`.
size_t more(const BytesByPurpose& before, MemoryPurpose purpose) { return of(live(), purpose) - of(before, purpose); }

struct MemoryRecorder : Observer {
  std::vector<MemoryEvent> events;
  const Attached attached{*this};

  MemoryRecorder() : Observer(Event::storage, Watch::this_thread) {}
  void storage(Device, const MemoryEvent& event, const MemoryStats&) override { events.push_back(event); }
};

}  // namespace

TEST_CASE("the innermost scope decides; without one, an op makes activations and anyone else something other") {
  const BytesByPurpose before = live();
  const Tensor mine = Tensor::empty({100}, DType::f32);
  CHECK(more(before, MemoryPurpose::other) == 400);
  const Tensor y = relu(Tensor::zeros({50}, DType::f32));
  CHECK(more(before, MemoryPurpose::activations) == 200);
  {
    const MemoryPurposeScope outer(MemoryPurpose::loader);
    const Tensor batch = Tensor::empty({10}, DType::u8);
    const Tensor scratch = Tensor::workspace(7, Device::cpu);
    CHECK(more(before, MemoryPurpose::loader) == 10);
    CHECK(more(before, MemoryPurpose::workspace) == 7);
    CHECK(relu(batch.defined() ? y : mine).defined());
    CHECK(MemoryPurposeScope::current() == MemoryPurpose::loader);
    std::thread([] { CHECK(MemoryPurposeScope::current() == MemoryPurpose::other); }).join();
  }
  CHECK(more(before, MemoryPurpose::loader) == 0);
  CHECK(more(before, MemoryPurpose::workspace) == 0);
  CHECK(MemoryPurposeScope::current() == MemoryPurpose::other);
}

TEST_CASE("peaks: of each purpose, and what the whole was made of when it was largest") {
  reset_peak(Device::cpu);
  const MemoryStats start = memory_stats(Device::cpu);
  CHECK(start.peak == start.live);
  CHECK(start.at_peak == start.live_by_purpose);
  {
    const MemoryPurposeScope purpose(MemoryPurpose::workspace);
    const Tensor early = Tensor::empty({1000}, DType::u8);
  }
  {
    const MemoryPurposeScope purpose(MemoryPurpose::loader);
    const Tensor late = Tensor::empty({3000}, DType::u8);
  }
  const MemoryStats end = memory_stats(Device::cpu);
  CHECK(end.live_by_purpose == start.live_by_purpose);
  CHECK(end.peak == start.live + 3000);
  CHECK(total(end.at_peak) == end.peak);
  CHECK(of(end.at_peak, MemoryPurpose::workspace) == of(start.live_by_purpose, MemoryPurpose::workspace));
  CHECK(of(end.at_peak, MemoryPurpose::loader) == of(start.live_by_purpose, MemoryPurpose::loader) + 3000);
  CHECK(of(end.peak_by_purpose, MemoryPurpose::workspace) ==
        of(start.live_by_purpose, MemoryPurpose::workspace) + 1000);
}

TEST_CASE("one step of a model: every byte has the purpose that the header promises, and what is temporary goes") {
  const BytesByPurpose before = live();
  const auto model = make_model("mnist_cnn", 1);
  ParameterArena arena(*model);
  const auto optimizer = make_optimizer(arena, {});
  GradScaler scaler({.enabled = true}, Device::cpu);
  CHECK(more(before, MemoryPurpose::parameters) == arena.values.bytes());
  CHECK(more(before, MemoryPurpose::gradients) == arena.gradients().bytes());
  CHECK(more(before, MemoryPurpose::optimizer) >= 2 * arena.values.bytes());
  CHECK(more(before, MemoryPurpose::optimizer) <= 2 * arena.values.bytes() + 256);
  const BytesByPurpose built = live();

  const int64_t N = 4;
  const Tensor images = Tensor::zeros({N, 28, 28, 1}, DType::f32);
  const Tensor labels = Tensor::zeros({N}, DType::i32);
  const BytesByPurpose with_batch = live();
  reset_peak(Device::cpu);
  {
    const Tensor loss = softmax_cross_entropy(model->forward(images), labels);
    CHECK(more(built, MemoryPurpose::activations) > static_cast<size_t>(N * 13 * 13 * 32) * sizeof(float));
    CHECK(more(built, MemoryPurpose::gradients) == 0);
    CHECK(more(built, MemoryPurpose::workspace) == 0);
    backward(loss, scaler.loss_gradient(0.5f));
    CHECK(more(built, MemoryPurpose::activations) == loss.bytes());
  }
  const BytesByPurpose peaks = memory_stats(Device::cpu).peak_by_purpose;
  CHECK(of(peaks, MemoryPurpose::gradients) > of(built, MemoryPurpose::gradients));
  CHECK(of(peaks, MemoryPurpose::workspace) > 0);
  CHECK(live() == with_batch);  // parameters, gradients, optimizer, and the batch of the test
  optimizer->step(scaler);
  CHECK(more(with_batch, MemoryPurpose::optimizer) == 0);
  CHECK(more(with_batch, MemoryPurpose::workspace) == 0);
  CHECK(more(with_batch, MemoryPurpose::activations) == 0);
}

TEST_CASE("an observer is told who made and freed what, in order, and it adds up") {
  const Tensor x = Tensor::zeros({30}, DType::f32);
  BytesByPurpose bytes = live();
  const MemoryRecorder recorder;
  { const Tensor y = sum(relu(x)); }
  CHECK(live() == bytes);
  const std::vector<MemoryEvent>& events = recorder.events;
  REQUIRE(events.size() >= 4);
  CHECK(events[0].op == std::string("relu"));
  CHECK(events[0].made);
  CHECK(events[0].bytes == 120);
  CHECK(events[0].purpose == MemoryPurpose::activations);
  CHECK(events[1].op == std::string("sum"));
  for (const MemoryEvent& event : events) {
    size_t& purpose = bytes[static_cast<size_t>(event.purpose)];
    purpose += event.made ? event.bytes : size_t{0} - event.bytes;
  }
  CHECK(bytes == live());
}

TEST_CASE("in backward, it names the op whose rule runs") {
  Tensor x = Tensor::zeros({30}, DType::f32);
  x.set_requires_grad(true);
  const Tensor loss = sum(mul(relu(x), x));
  const MemoryRecorder recorder;
  backward(loss);
  std::string ops;
  for (const MemoryEvent& event : recorder.events) {
    if (!event.made) continue;
    CHECK(event.purpose == MemoryPurpose::gradients);
    ops += std::string(event.op) + " ";
  }
  CHECK(ops.find("mul") != std::string::npos);
  CHECK(ops.find("relu") != std::string::npos);
}

}  // namespace hs::test
