// Work that is captured as a CUDA graph and replayed: memory of its own, and what a capture does not allow, after which
// everything still works. That whole steps have the bits of steps done as they come: tests/cuda/training.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "engine/captured_work.h"
#include "engine/error.h"
#include "engine/observe.h"
#include "engine/slots.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/relu/relu.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"
#include "tests/support/checks.h"
#include "tests/support/emulated.h"
#include "tests/support/random_tensor.h"

namespace hs::test {
namespace {

// A training step in which everything that changes is on the device: dropout by the step counter, and Adam.
class Step : public Module {
 public:
  Step() {
    add_parameter("weight", weight_, ParameterRole::matrix);
    add_parameter("bias", bias_, ParameterRole::bias);
    arena_ = std::make_unique<ParameterArena>(*this, Device::cuda);
    optimizer_ = make_optimizer(*arena_, {.name = "adam", .learning_rate = 0.1f});
  }
  void run() {
    arena_->zero_gradients();
    const RandomStream stream{3, RandomPurpose::dropout, 0, 0, 0};
    const Tensor hidden = dropout(relu(x_), 0.5, stream, optimizer_->step_counter());
    const Tensor loss = softmax_cross_entropy(linear(hidden, weight_, bias_), labels_);
    backward(loss, one_);  // a dy of its own making would come from the host
    accumulate(loss.detach(), total_);
    optimizer_->step();
    temporaries = {hidden.raw_data(), loss.raw_data()};
  }
  std::vector<const void*> temporaries;  // of the last run that did the work

 private:
  Tensor forward(const Tensor& x) override { return linear(x, weight_, bias_); }

  Tensor weight_ = random_tensor({12, 5}, 2), bias_ = random_tensor({5}, 3);
  Tensor x_ = random_tensor({8, 12}, 1).to(Device::cuda), total_ = Tensor::zeros({}, DType::f32, Device::cuda);
  Tensor one_ = Tensor::from(std::vector<float>{1}, {}).to(Device::cuda);
  Tensor labels_ = Tensor::from(std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2}, {8}).to(Device::cuda);
  std::unique_ptr<ParameterArena> arena_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

TEST_CASE("the work is done once as it is, once to be captured, and from then on by replay alone") {
  const Tensor x = Tensor::from(std::vector<float>{1, -2, 3}, {3}).to(Device::cuda);
  Tensor sum = Tensor::zeros({3}, DType::f32, Device::cuda);
  CapturedWork work(Device::cuda);
  int done = 0;
  for (int i = 1; i <= 5; ++i) {
    const uint64_t calls = calls_of(add_forward);
    work.run([&] {
      ++done;
      accumulate(relu(x), sum);
    });
    CHECK(done == std::min(i, 2));
    CHECK(calls_of(add_forward) - calls == (i <= 2 ? 1u : 0u));
    const auto n = static_cast<float>(i);
    CHECK(sum.to_vector<float>() == std::vector<float>{n, 0, 3 * n});
  }
}

TEST_CASE("what a replay writes belongs to nobody else") {
  for (const bool caching : {false, true}) {
    set_caching(caching);
    {
      Step step;
      CapturedWork work(Device::cuda);
      for (int i = 0; i < 3; ++i) work.run([&] { step.run(); });
      std::vector<Tensor> others;  // of the sizes of the temporaries
      for (int i = 0; i < 30; ++i) {
        others.push_back(Tensor::zeros({8, 12}, DType::f32, Device::cuda));
        others.push_back(Tensor::zeros({}, DType::f32, Device::cuda));
      }
      for (int i = 0; i < 3; ++i) work.run([&] { step.run(); });
      for (const Tensor& other : others) {
        CHECK(std::ranges::count(step.temporaries, other.raw_data()) == 0);
        const auto values = other.to_vector<float>();
        CHECK(std::ranges::count(values, 0.0f) == other.size());
      }
    }
    release_cached_memory(Device::cuda);
    release_cached_memory(Device::cpu);
  }
  set_caching(false);
}

TEST_CASE("what a capture does not allow is refused with the op and the reason, and everything works afterwards") {
  const Tensor x = Tensor::from(std::vector<float>{1, -2, 3}, {3}).to(Device::cuda);
  const Tensor host = Tensor::from(std::vector<float>{4, 5, 6}, {3});
  Tensor target = x.clone(), result = x.clone();
  std::vector<Tensor> kept;  // so that the pool has no block for the second time
  void* event = runtime(Device::cuda).create_event(EventTiming::off);
  runtime(Device::cuda).record_event(event, Stream::compute);
  const struct {
    std::string what;
    std::function<void()> forbidden;
  } cases[] = {
      {"test_op: reading a tensor on the host", [&] { (void)target.to_vector<float>(); }},
      {"test_op: reading a tensor on the host", [&] { (void)target.slice(0, {}).item(); }},
      {"test_op: reading a tensor on the host", [&] { (void)target.to(Device::cpu); }},
      {"test_op: copying a tensor from the host", [&] { target.copy_from(host); }},
      {"relu: allocating 12 bytes", [&] { kept.push_back(relu(target)); }},
      {"test_op: waiting for the device", [] { runtime(Device::cuda).synchronize(); }},
      {"test_op: waiting for an event", [&] { runtime(Device::cuda).wait_on_host(event); }},
  };
  for (const auto& [what, forbidden] : cases) {
    INFO(what);
    CapturedWork work(Device::cuda);
    bool allowed = false;
    const auto step = [&] {
      accumulate(relu(x), target);
      const Op op("test_op");
      if (!allowed) forbidden();
    };
    work.run(step);
    CHECK(device_error([&] { work.run(step); }) ==
          what + " is not possible while a step is captured as a CUDA graph; do not capture it");
    // Nothing was done and nothing is broken: ops run, another object captures, and so does this one in a second try.
    target.copy_from(x);
    CHECK(relu(x).to_vector<float>() == std::vector<float>{1, 0, 3});
    CapturedWork other(Device::cuda);
    for (int i = 0; i < 3; ++i) other.run([&] { result.copy_from(add(x, x)); });
    CHECK(result.to_vector<float>() == std::vector<float>{2, -4, 6});
    allowed = true;
    kept.clear();
    for (int i = 0; i < 3; ++i) work.run(step);
    CHECK(target.to_vector<float>() == std::vector<float>{4, -2, 12});
  }
  runtime(Device::cuda).destroy_event(event);
}

TEST_CASE("the CPU captures nothing") {
  CHECK_THROWS_WITH_AS(CapturedWork{Device::cpu}, "graph on: the cpu captures no graphs; switch it off", Error);
}

}  // namespace hs::test
