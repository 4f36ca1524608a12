// The toy's result and gradients are those of the engine's attention.
#define main main_of_online_softmax
#include "docs/techniques/toy/online_softmax.cpp"
#undef main

#include <doctest/doctest.h>

#include "engine/autograd.h"
#include "kernels/causal_attention/causal_attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/reduce.h"

TEST_CASE("toy: online softmax") {
  constexpr int T = 70;  // more than a block of the engine's keys
  const Rows x = numbers(T * row, 4, 2), dy = numbers(T * D, 5, 1);
  hs::Tensor qkv = hs::Tensor::from(x, {1, T, row});
  qkv.set_requires_grad(true);
  const hs::Tensor y = hs::causal_attention(qkv, 1);
  hs::backward(hs::sum(hs::mul(y, hs::Tensor::from(dy, {1, T, D}))));
  const Forward kept = forward(x);
  const Rows dqkv = backward(x, kept, dy), its_y = y.to_vector<float>(), its_dqkv = qkv.grad().to_vector<float>();
  for (size_t i = 0; i < its_y.size(); ++i) CHECK(std::abs(kept.y[i] - its_y[i]) < 1e-5f);
  for (size_t i = 0; i < dqkv.size(); ++i) CHECK(std::abs(dqkv[i] - its_dqkv[i]) < 1e-5f);
  CHECK(main_of_online_softmax(2, nullptr) == 0);
}
