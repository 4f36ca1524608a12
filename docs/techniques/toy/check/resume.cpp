// The toy's state is what a hs::TrainingState holds: the engine restores it, and its next step is the toy's.
#define main main_of_resume
#include "docs/techniques/toy/resume.cpp"
#undef main

#include <doctest/doctest.h>

#include <span>

#include "models/files/training_state.h"

namespace {

struct Line : hs::Module {
  hs::Tensor w = hs::Tensor::zeros({features}, hs::DType::f32);
  Line() { add_parameter("w", w, hs::ParameterRole::matrix); }
  hs::Tensor forward(const hs::Tensor& x) override { return x; }
};

hs::Tensor from(const float* values) { return hs::Tensor::from(std::span(values, features), {features}); }

}  // namespace

TEST_CASE("toy: saving and resuming") {
  Line line;
  hs::ParameterArena arena(line);
  const auto adam = hs::make_optimizer(arena, {.learning_rate = 0.05f});
  hs::GradScaler scaler({}, hs::Device::cpu);
  for (State toy; toy.step < 30;) {
    const hs::TrainingState state{{{"w", from(toy.w)},
                                   {"optimizer.mean.w", from(toy.mean)},
                                   {"optimizer.square.w", from(toy.square)},
                                   {"optimizer.step", hs::Tensor::from(std::vector<int32_t>{toy.step}, {})},
                                   {"scaler", hs::Tensor::from(std::vector<float>{1, 0, 0}, {3})}},
                                  {}};
    hs::restore_state(state, arena, *adam, scaler);
    const State before = toy;
    train_step(toy);
    arena.zero_gradients();
    std::vector<float> gradient;  // what the step has added to the first mean
    for (int f = 0; f < features; ++f) gradient.push_back((toy.mean[f] - 0.9f * before.mean[f]) / 0.1f);
    std::copy_n(gradient.begin(), features, arena.gradients().mutable_data<float>());
    adam->step(scaler);
    const hs::TrainingState after = hs::copy_state(arena, *adam, scaler);
    for (int f = 0; f < features; ++f) {
      CHECK(after.tensors.at("w").to_vector<float>()[f] == doctest::Approx(toy.w[f]).epsilon(1e-4));
      CHECK(after.tensors.at("optimizer.mean.w").to_vector<float>()[f] == doctest::Approx(toy.mean[f]).epsilon(1e-4));
      CHECK(after.tensors.at("optimizer.square.w").to_vector<float>()[f] ==
            doctest::Approx(toy.square[f]).epsilon(1e-4));
    }
    CHECK(after.tensors.at("optimizer.step").to_vector<int32_t>()[0] == toy.step);
    CHECK(after.tensors.size() == state.tensors.size());
  }
  CHECK(main_of_resume() == 0);
}
