// tests/exercise 01 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "docs/exercises/01/exercise.h"
#include "engine/autograd.h"
#include "engine/storage.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/reduce.h"

using namespace hs;

namespace {

const std::vector<float> points = {-1000, -90, -17, -3, -0.5f, 0, 0.25f, 2, 15, 80, 90, 1000};

double exact(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

Tensor leaf() {
  Tensor x = Tensor::from(points, {static_cast<int64_t>(points.size())});
  x.set_requires_grad(true);
  return x;
}

}  // namespace

TEST_CASE("the values, large and small ones too") {
  const Tensor y = exercise::softplus(leaf());
  for (size_t i = 0; i < points.size(); ++i) {
    INFO("softplus(", points[i], ")");
    CHECK(y.data<float>()[i] == doctest::Approx(exact(points[i])).epsilon(1e-6).scale(1e-30));
  }
}

TEST_CASE("the gradient") {
  Tensor x = leaf();
  const Tensor y = exercise::softplus(x);
  REQUIRE_MESSAGE(y.requires_grad(), "the result has no history: return record(...)");
  backward(sum(scale(y, 3)));
  for (size_t i = 0; i < points.size(); ++i) {
    INFO("d softplus(", points[i], ") / dx");
    const double slope = 1 / (1 + std::exp(-static_cast<double>(points[i])));
    CHECK(x.grad().data<float>()[i] == doctest::Approx(3 * slope).epsilon(1e-6).scale(1e-30));
  }
}

TEST_CASE("x can be freed: only y is kept for backward") {
  const auto activations = [] {
    return memory_stats(Device::cpu).live_by_purpose[static_cast<size_t>(MemoryPurpose::activations)];
  };
  Tensor x = Tensor::zeros({100000}, DType::f32);
  x.set_requires_grad(true);
  const size_t before = activations();
  Tensor between = scale(x, 2);
  const size_t one = activations() - before;  // bytes of a tensor of this size
  const Op op("softplus");                    // so that what is allocated here counts as an activation
  const Tensor y = exercise::softplus(between);
  REQUIRE(y.requires_grad());
  between = Tensor();
  CHECK(activations() - before == one);
}
