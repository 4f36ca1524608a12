// The toy's layer, its gradients and its merged weight are those of the engine's Linear.
#define main main_of_lora
#include "docs/techniques/toy/lora.cpp"
#undef main

#include <doctest/doctest.h>

#include "engine/autograd.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/reduce.h"
#include "models/layers.h"
#include "models/lora.h"

TEST_CASE("toy: LoRA") {
  const Matrix x = numbers(samples * in, 1), W = numbers(in * out, 2), dy = numbers(samples * out, 3);
  const Adapters adapters = {numbers(rank * in, 4), numbers(out * rank, 5)};
  hs::Linear layer(hs::Tensor::from(W, {in, out}));
  hs::LayerKeys keys(1);
  const hs::LoraOptions options = {.rank = rank, .alpha = alpha};
  layer.adapt(options, keys);
  hs::ParameterArena arena(layer);
  const std::vector<hs::NamedParameter> parameters = layer.parameters();
  REQUIRE(parameters.size() == 3);
  parameters[1].value->copy_from(hs::Tensor::from(adapters.A, {rank, in}));
  parameters[2].value->copy_from(hs::Tensor::from(adapters.B, {out, rank}));
  const hs::Tensor y = layer.forward(hs::Tensor::from(x, {samples, in}));
  hs::backward(hs::sum(hs::mul(y, hs::Tensor::from(dy, {samples, out}))));
  CHECK(distance(forward(x, W, adapters), y.to_vector<float>()) < 1e-5f);
  Adapters gradient = backward(x, adapters, dy);
  for (Matrix* values : {&gradient.A, &gradient.B}) {
    for (float& value : *values) value *= factor;
  }
  CHECK(distance(gradient.A, parameters[1].value->grad().to_vector<float>()) < 1e-4f);
  CHECK(distance(gradient.B, parameters[2].value->grad().to_vector<float>()) < 1e-4f);
  CHECK(distance(merged(W, adapters), hs::merged_parameters(layer, options)[0].tensor.to_vector<float>()) < 1e-6f);
  CHECK(main_of_lora() == 0);
}
