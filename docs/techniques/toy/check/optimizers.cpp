// The toy's formulas are the engine's, over a few steps.
#define main main_of_optimizers
#include "docs/techniques/toy/optimizers.cpp"
#undef main

#include <doctest/doctest.h>

#include "engine/autograd.h"
#include "engine/module.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduce.h"

namespace {

class Matrix : public hs::Module {  // of two dimensions: LARS and LAMB leave vectors alone
 public:
  Matrix() : w_(hs::Tensor::from(std::vector<float>{1, -2, 0.5f, 3, -0.25f, 2}, {2, 3})) {
    add_parameter("w", w_, hs::ParameterRole::matrix);
  }
  hs::Tensor forward(const hs::Tensor& g) override { return hs::sum(hs::mul(w_, g)); }  // whose gradient is g
  std::vector<float> values() const { return w_.to_vector<float>(); }

 private:
  hs::Tensor w_;
};

}  // namespace

TEST_CASE("toy: optimizers") {
  for (const char* name : {"adam", "adamw", "lars", "lamb"}) {
    CAPTURE(name);
    Matrix matrix;
    const std::vector<float> before = matrix.values();
    Numbers w(before.begin(), before.end());
    hs::ParameterArena arena(matrix);
    const auto engine = hs::make_optimizer(arena, {.name = name, .learning_rate = 0.1f, .weight_decay = 0.05f});
    Optimizer toy(name, {.wd = 0.05}, w.size());
    for (int t = 0; t < 5; ++t) {
      std::vector<float> g(w.size());
      for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>((i * 5 + t * 3) % 7) - 3.5f;
      engine->zero_gradients();
      hs::backward(matrix.forward(hs::Tensor::from(g, {2, 3})));
      engine->step();
      toy.step(w, Numbers(g.begin(), g.end()));
    }
    for (size_t i = 0; i < w.size(); ++i) {
      CHECK(std::abs(w[i] - matrix.values()[i]) < 1e-5);
      CHECK(std::abs(w[i] - before[i]) > 1e-5);
    }
  }
  CHECK(main_of_optimizers() == 0);
}
