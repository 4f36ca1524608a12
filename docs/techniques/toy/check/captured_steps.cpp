// The toy's replayed steps are the engine's SGD with its linear schedule, whose rate the device's counter gives.
#define main main_of_captured_steps
#include "docs/techniques/toy/captured_steps.cpp"
#undef main

#include <doctest/doctest.h>

#include "engine/autograd.h"
#include "engine/module.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"

namespace {

class Weights : public hs::Module {
 public:
  explicit Weights(const std::vector<float>& values)
      : w_(hs::Tensor::from(values, {static_cast<int64_t>(values.size())})) {
    add_parameter("w", w_, hs::ParameterRole::matrix);
  }
  hs::Tensor forward(const hs::Tensor& x) override { return hs::scale(hs::sum(hs::mul(x, hs::mul(w_, w_))), 0.5); }
  std::vector<float> values() const { return w_.to_vector<float>(); }

 private:
  hs::Tensor w_;
};

}  // namespace

TEST_CASE("toy: captured steps") {
  const std::vector<float> w = {1, -2, 3, 0.5f};
  Weights weights(w);
  hs::ParameterArena arena(weights);
  const auto optimizer =
      hs::make_optimizer(arena, {.name = "sgd",
                                 .learning_rate = 0.5f,
                                 .momentum = 0,
                                 .schedule = {.kind = hs::ScheduleKind::linear, .total_steps = steps}});
  for (int t = 0; t < steps; ++t) {
    optimizer->zero_gradients();
    hs::backward(weights.forward(hs::Tensor::from(batch(t, w.size()), {4})));
    optimizer->step();
  }
  const Trained toy = train(w, 0.5f, Counter::device, true);
  for (size_t i = 0; i < w.size(); ++i) CHECK(std::abs(toy.w[i] - weights.values()[i]) < 1e-6f);
  CHECK(main_of_captured_steps() == 0);
}
