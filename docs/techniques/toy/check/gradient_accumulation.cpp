// The toy's gradient of uneven parts is the engine's gradient of the whole batch.
#define main main_of_gradient_accumulation
#include "docs/techniques/toy/gradient_accumulation.cpp"
#undef main

#include <doctest/doctest.h>

#include "kernels/linear/linear.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

TEST_CASE("toy: gradient accumulation") {
  const std::vector<Sample> samples = some_samples(10);
  std::vector<float> x, w(features * classes);
  std::vector<int32_t> labels;
  for (size_t i = 0; i < w.size(); ++i) w[i] = 0.1f * static_cast<float>(i % 4);
  for (const Sample& sample : samples) {
    x.insert(x.end(), sample.x, sample.x + features);
    labels.push_back(sample.label);
  }
  hs::Tensor weight = hs::Tensor::from(w, {features, classes}), bias = hs::Tensor::zeros({classes}, hs::DType::f32);
  weight.set_requires_grad(true);
  hs::backward(hs::softmax_cross_entropy(hs::linear(hs::Tensor::from(x, {10, features}), weight, bias),
                                         hs::Tensor::from(labels, {10})));
  CHECK(distance(accumulate(w, samples, 4), weight.grad().to_vector<float>()) < 1e-6f);
  CHECK(main_of_gradient_accumulation() == 0);
}
