// Activation checkpointing: less memory, and what it refuses. That models have the same bits with it, and compute
// nothing more often than they must: tests/support/checkpoint_models.h.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "engine/autograd.h"
#include "engine/checkpoint.h"
#include "engine/error.h"
#include "engine/module.h"
#include "engine/random.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "tests/support/random_tensor.h"
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

using Fn = std::function<Tensor(const Tensor&)>;

// Four blocks of linear, ReLU and dropout.
class Net : public Module {
 public:
  static constexpr int blocks = 4;
  static constexpr int64_t width = 24;

  Net() {
    for (int b = 0; b < blocks; ++b) {
      weights_[b] = random_tensor({width, width}, static_cast<uint32_t>(10 + b));
      add_parameter("weight" + std::to_string(b), weights_[b]);
    }
  }
  Fn range(int begin, int end) {
    return [this, begin, end](const Tensor& x) {
      Tensor y = x;
      for (int b = begin; b < end; ++b) {
        const RandomStream stream{11, RandomPurpose::dropout, static_cast<uint32_t>(b), 0, 0};
        y = dropout(relu(linear(y, weights_[b], {})), 0.5, stream, ambient().step);
      }
      return y;
    };
  }
  Tensor forward(const Tensor& x) override { return range(0, blocks)(x); }

 private:
  Tensor weights_[blocks];
};

}  // namespace

TEST_CASE("nothing is kept but the inputs of the segments") {
  constexpr int64_t batch = 4000;
  const size_t activation = static_cast<size_t>(batch * Net::width) * sizeof(float);
  const auto peak_with = [](const std::function<Tensor(Net&, const Tensor&)>& forward) {
    Net net;
    const ParameterArena arena(net);
    const Tensor x = random_tensor({batch, Net::width}, 1);
    reset_peak(Device::cpu);
    const size_t before = memory_stats(Device::cpu).live;
    backward(sum(forward(net, x)));
    return memory_stats(Device::cpu).peak - before;
  };
  const size_t without = peak_with([](Net& net, const Tensor& x) { return net.forward(x); });
  const size_t with = peak_with([](Net& net, const Tensor& x) {
    Tensor y = x;
    for (int b = 0; b < Net::blocks; ++b) y = checkpoint(net.range(b, b + 1), y);
    return y;
  });
  // Each block saves its input, and its ReLU's output: 2 of them for 4 blocks without; with, the inputs and one block.
  CHECK(without >= 8 * activation);
  CHECK(with + activation <= without);
}

TEST_CASE("without a history there is none, and parameters alone are enough for one") {
  Net net;
  const Tensor x = random_tensor({2, Net::width}, 1);
  ParameterArena arena(net);
  CHECK(checkpoint(net.range(0, 1), x).requires_grad());
  CHECK_FALSE(checkpoint([](const Tensor& a) { return relu(a); }, x).requires_grad());
  const NoGrad no_grad;
  CHECK_FALSE(checkpoint(net.range(0, 1), x).requires_grad());
}

TEST_CASE("an input or a dropout key that changes before backward is refused") {
  const AmbientScope scope;
  ambient().step = Tensor::from(std::vector<int32_t>{3}, {});
  Net net;
  ParameterArena arena(net);
  Tensor x = random_tensor({2, Net::width}, 1);
  const Tensor first = sum(checkpoint(net.range(0, 2), x));
  x.mutable_data<float>()[0] += 1;
  CHECK(error_of([&] { backward(first); }).find("modified before backward") != std::string::npos);
  const Tensor second = sum(checkpoint(net.range(0, 2), x));
  ambient().step.mutable_data<int32_t>()[0] += 1;
  CHECK(error_of([&] { backward(second); }).find("modified before backward") != std::string::npos);
}

TEST_CASE("backward leaves the ambient state as it was") {
  const AmbientScope scope;
  Net net;
  ParameterArena arena(net);
  ambient().seed = 1;
  const Tensor loss = sum(checkpoint(net.range(0, 2), random_tensor({2, Net::width}, 1)));
  ambient().seed = 2;
  backward(loss);
  CHECK(ambient().seed == 2);
  CHECK(ambient().recording);
}

}  // namespace hs::test
