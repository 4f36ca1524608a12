// Activation checkpointing: the same bits, less memory, nothing computed more often than it must be.
#include <doctest/doctest.h>

#include <cstring>
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
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

using Fn = std::function<Tensor(const Tensor&)>;

Tensor numbers(const Shape& shape, uint32_t which) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.size(); ++i) {
    values.push_back(2 * to_unit_float(random_bits({3, RandomPurpose::init, which, 0, 0}, static_cast<uint64_t>(i))) -
                     1);
  }
  return Tensor::from(values, shape);
}

// Four blocks of linear, ReLU and dropout, each its own function.
class Net : public Module {
 public:
  static constexpr int blocks = 4;
  static constexpr int64_t width = 24;

  Net() {
    for (int b = 0; b < blocks; ++b) {
      weights_[b] = numbers({width, width}, static_cast<uint32_t>(10 + b));
      biases_[b] = numbers({width}, static_cast<uint32_t>(20 + b));
      add_parameter("weight" + std::to_string(b), weights_[b]);
      add_parameter("bias" + std::to_string(b), biases_[b]);
    }
  }

  Tensor block(int b, const Tensor& x) {
    ++calls[b];
    const Ambient& now = ambient();
    const RandomStream stream{now.seed, RandomPurpose::dropout, static_cast<uint32_t>(b), 0, now.micro_step};
    const Tensor y = relu(linear(x, weights_[b], biases_[b]));
    return now.training ? dropout(y, 0.5, stream, now.step) : y;
  }
  Fn range(int begin, int end) {
    return [this, begin, end](const Tensor& x) {
      Tensor y = x;
      for (int b = begin; b < end; ++b) y = block(b, y);
      return y;
    };
  }
  Tensor forward(const Tensor& x) override { return range(0, blocks)(x); }

  int calls[blocks] = {};

 private:
  Tensor weights_[blocks], biases_[blocks];
};

struct Outcome {
  std::vector<float> loss, gradients, input_gradient;
  size_t peak = 0;
};

// One step of `forward` on a fresh net.
Outcome run(const std::function<Tensor(Net&, const Tensor&)>& forward, bool input_needs_gradient = false,
            int64_t batch = 5, Net* watched = nullptr) {
  const AmbientScope scope;
  ambient().training = true;
  ambient().seed = 11;
  ambient().step = Tensor::from(std::vector<int32_t>{3}, {});
  Net own;
  Net& net = watched ? *watched : own;
  ParameterArena arena(net);
  Tensor x = numbers({batch, Net::width}, 1);
  x.set_requires_grad(input_needs_gradient);
  reset_peak(Device::cpu);
  const size_t before = memory_stats(Device::cpu).live;
  Outcome outcome;
  {
    const Tensor loss = sum(forward(net, x));
    outcome.loss = loss.to_vector<float>();
    backward(loss);
  }
  outcome.peak = memory_stats(Device::cpu).peak - before;
  outcome.gradients = arena.gradients().to_vector<float>();
  if (input_needs_gradient) outcome.input_gradient = x.grad().to_vector<float>();
  return outcome;
}

Tensor plain(Net& net, const Tensor& x) { return net.forward(x); }

}  // namespace

TEST_CASE("losses and gradients are the same bits, whichever blocks are checkpointed, nested too") {
  for (const bool input_needs_gradient : {false, true}) {
    const Outcome expected = run(plain, input_needs_gradient);
    CHECK(expected.gradients != std::vector<float>(expected.gradients.size()));
    for (int begin = 0; begin < Net::blocks; ++begin) {
      for (int end = begin + 1; end <= Net::blocks; ++end) {
        const Outcome got = run(
            [&](Net& net, const Tensor& x) {
              const Tensor y = checkpoint(net.range(begin, end), net.range(0, begin)(x));
              return net.range(end, Net::blocks)(y);
            },
            input_needs_gradient);
        CAPTURE(begin);
        CAPTURE(end);
        CHECK(got.loss == expected.loss);
        CHECK(got.gradients == expected.gradients);
        CHECK(got.input_gradient == expected.input_gradient);
      }
    }
    const Outcome nested = run(
        [](Net& net, const Tensor& x) {
          return checkpoint(
              [&net](const Tensor& a) {
                const Tensor inner =
                    checkpoint([&net](const Tensor& b) { return checkpoint(net.range(2, 3), net.range(1, 2)(b)); },
                               net.range(0, 1)(a));
                return net.range(3, 4)(inner);
              },
              x);
        },
        input_needs_gradient);
    CHECK(nested.loss == expected.loss);
    CHECK(nested.gradients == expected.gradients);
    CHECK(nested.input_gradient == expected.input_gradient);
  }
}

TEST_CASE("nothing is kept but the inputs of the segments") {
  const int64_t batch = 4000;
  const size_t activation = static_cast<size_t>(batch * Net::width) * sizeof(float);
  const size_t without = run(plain, false, batch).peak;
  const size_t with = run(
                          [](Net& net, const Tensor& x) {
                            Tensor y = x;
                            for (int b = 0; b < Net::blocks; ++b) y = checkpoint(net.range(b, b + 1), y);
                            return y;
                          },
                          false, batch)
                          .peak;
  // Each block saves its input, and its ReLU's output: 2 of them for 4 blocks without; with, the inputs and one block.
  CHECK(without >= 8 * activation);
  CHECK(with + activation <= without);
}

TEST_CASE("without a history there is none, and parameters alone are enough for one") {
  Net net;
  const Tensor x = numbers({2, Net::width}, 1);
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
  Tensor x = numbers({2, Net::width}, 1);
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
  const Tensor loss = sum(checkpoint(net.range(0, 2), numbers({2, Net::width}, 1)));
  ambient().seed = 2;
  backward(loss);
  CHECK(ambient().seed == 2);
  CHECK(ambient().recording);
}

}  // namespace hs::test
