// Activation checkpointing: what has a history, and what is refused. That models have the same bits with it, and
// compute nothing more often than they must: tests/support/checkpoint_models.h; how little they keep:
// tests/models/checkpoint_plan.cpp.
#include "engine/checkpoint.h"

#include "engine/autograd.h"
#include "engine/module.h"
#include "kernels/dropout/dropout.h"
#include "kernels/linear/linear.h"
#include "kernels/reduce/reduce.h"
#include "kernels/relu/relu.h"
#include "tests/support/random_tensor.h"
#include "tests/support/thrown.h"

namespace hs::test {
namespace {

struct Net : Module {
  Tensor weight = random_tensor({24, 24}, 10);
  Net() { add_parameter("weight", weight, ParameterRole::matrix); }
  Tensor forward(const Tensor& x) override {
    return dropout(relu(linear(x, weight, {})), 0.5, {11, RandomPurpose::dropout, 0, 0, 0}, ambient().step);
  }
};

struct Checkpointed {
  const AmbientScope scope;
  Net net;
  ParameterArena arena{net};
  Tensor x = random_tensor({2, 24}, 1);
  Tensor run() {
    return checkpoint([this](const Tensor& in) { return net.forward(in); }, x);
  }
};

}  // namespace

TEST_CASE("without a history there is none, and parameters alone are enough for one") {
  Checkpointed one;
  CHECK(one.run().requires_grad());
  CHECK_FALSE(checkpoint([](const Tensor& a) { return relu(a); }, one.x).requires_grad());
  const NoGrad no_grad;
  CHECK_FALSE(one.run().requires_grad());
}

TEST_CASE("an input or a dropout key that changes before backward is refused") {
  Checkpointed one;
  ambient().step = Tensor::from(std::vector<int32_t>{3}, {});
  for (const auto& change : {std::function([&] { one.x.mutable_data<float>()[0] += 1; }),
                             std::function([&] { ambient().step.mutable_data<int32_t>()[0] += 1; })}) {
    const Tensor loss = sum(one.run());
    change();
    CHECK(error_of([&] { backward(loss); }).find("modified before backward") != std::string::npos);
  }
}

TEST_CASE("backward leaves the ambient state as it was") {
  Checkpointed one;
  ambient().seed = 1;
  const Tensor loss = sum(one.run());
  ambient().seed = 2;
  backward(loss);
  CHECK(ambient().seed == 2);
  CHECK(ambient().recording);
}

}  // namespace hs::test
