// The toy's gradients are those of hs::checkpoint, and its peaks those that the planner predicts.
#define main main_of_checkpointing
#include "docs/techniques/toy/checkpointing.cpp"
#undef main

#include <doctest/doctest.h>

#include "engine/checkpoint.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/relu/relu.h"
#include "models/training/checkpoint_plan.h"

TEST_CASE("toy: activation checkpointing") {
  constexpr int n = 12, width = 3, step = 5;
  const Vector x = {0.5f, -1, 2};
  std::vector<Vector> w(n);
  std::vector<hs::Tensor> weights, masks;
  for (unsigned block = 0; block < n; ++block) {
    Vector drawn;
    for (unsigned i = 0; i < width; ++i) {
      w[block].push_back(0.1f * static_cast<float>(block) - 0.2f * static_cast<float>(i));
      drawn.push_back(mask(step, block, i));
    }
    weights.push_back(hs::Tensor::from(w[block], {width}));
    weights.back().set_requires_grad(true);
    masks.push_back(hs::Tensor::from(drawn, {width}));
  }
  for (const int k : {1, 3, 5, 12}) {
    hs::Tensor y = hs::Tensor::from(x, {width});
    for (int begin = 0; begin < n; begin += k) {
      const int end = std::min(begin + k, n);
      const auto segment = [begin, end, &weights, &masks](hs::Tensor z) {
        for (int i = begin; i < end; ++i) {
          z = hs::add(z, hs::mul(hs::relu(hs::mul(z, weights[i])), masks[i]));
        }
        return z;
      };
      y = hs::checkpoint(segment, y);
    }
    hs::backward(y, hs::Tensor::from(Vector(width, 1), {width}));
    const std::vector<Vector> dw = gradients(w, x, k, step, step);
    for (int i = 0; i < n; ++i) {
      CHECK(dw[i] == weights[i].grad().to_vector<float>());
      weights[i].grad().fill_zero();
    }

    hs::StepCosts costs;  // a block keeps its input and one more tensor, each of one byte; the loss costs nothing
    costs.stages.resize(n, {.name = {}, .input = 1, .output = 1, .saved = 1, .saves_input = true});
    const std::vector<hs::Segment> segments = hs::segments_of({hs::CheckpointChoice::Kind::every, k}, n);
    CHECK(hs::predict(costs, segments).peak == peak);
  }
  CHECK(main_of_checkpointing(2, nullptr) == 0);
}
