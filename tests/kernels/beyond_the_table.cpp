// What the op table does not see of some kernels: arguments that are refused, values far from zero and near it, and the
// arithmetic of the CUDA kernels' indices, which needs no device.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/argmax/argmax.h"
#include "kernels/cast/cast.h"
#include "kernels/cuda/index.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/feed_forward/gelu_feed_forward.h"
#include "kernels/gelu/gelu.h"
#include "kernels/mse_loss/mse_loss.h"
#include "kernels/optimizer/steps.h"
#include "kernels/transpose/transpose.h"
#include "kernels/unary/unary.h"
#include "tests/support/checks.h"
#include "tests/support/thrown.h"

namespace hs::test {

TEST_CASE("embedding: an index outside of the table is bad input, named with its place") {
  const Tensor table = Tensor::zeros({65, 4}, DType::f32);
  for (const int32_t wrong : {-1, 65, 1 << 30}) {
    const Tensor indices = Tensor::from(std::vector<int32_t>{0, 64, wrong, 1}, {2, 2});
    const std::string message = error_of([&] { embedding(indices, table); }, ExitCode::bad_input);
    CHECK(message.ends_with("index " + std::to_string(wrong) + " at place 2 of (2, 2) is not in 0 to 64"));
  }
}

TEST_CASE("gelu_feed_forward is three ops where one kernel may not stand for them") {
  const Tensor x = Tensor::zeros({2048, 16}, DType::f32), other = Tensor::zeros({16, 16}, DType::f32);
  Tensor one = Tensor::zeros({16, 16}, DType::f32);
  one.set_requires_grad(true);
  const auto calls = [&](const Tensor& second) {
    const uint64_t before = gelu_feed_forward_forward.variants()->calls;
    gelu_feed_forward(x, one, second);
    return gelu_feed_forward_forward.variants()->calls - before;
  };
  CHECK(calls(other) == 1);
  CHECK(calls(one) == 0);  // whose gradient is the sum of two
  {
    const ForcedVariant forced(gelu_forward, "simple");
    CHECK(calls(other) == 0);
  }
  const Inference scope;
  ambient().fuse = false;
  CHECK(calls(other) == 0);
}

// A careless order of its operations gives inf * 0.
TEST_CASE("gelu far from zero is x or 0, and its gradient 1 or 0") {
  const std::vector<float> far = {20, 1e3f, 1e5f, 1e18f, 1e25f, 3e38f};
  std::vector<float> x = far;
  for (const float value : far) x.push_back(-value);
  const auto count = static_cast<int64_t>(x.size());
  for (const char* variant : {"simple", "simd"}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      if (dtype == DType::f64 && std::string(variant) == "simd") continue;
      const ForcedVariant forward(gelu_forward, variant), backward(gelu_backward, variant);
      const Tensor in = cast(Tensor::from(x, {count}), dtype);
      Tensor y = in.empty_like(), dx = in.empty_like();
      gelu_forward({in, y});
      gelu_backward({in, cast(Tensor::from(std::vector<float>(x.size(), 1), {count}), dtype), dx});
      const auto values = cast(in, DType::f64).to_vector<double>(), results = cast(y, DType::f64).to_vector<double>(),
                 gradients = cast(dx, DType::f64).to_vector<double>();
      for (size_t i = 0; i < x.size(); ++i) {
        CAPTURE(x[i]);
        CHECK(std::fabs(results[i] - (x[i] > 0 ? values[i] : 0)) < 1e-30);
        CHECK(std::fabs(gradients[i] - (x[i] > 0 ? 1 : 0)) < 1e-30);
      }
    }
  }
}

TEST_CASE("exp, log, tanh and sigmoid at the ends of their ranges") {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  struct End {
    Tensor (*op)(const Tensor&);
    double x, y, slope;
  };
  const End ends[] = {{exp, 1000, inf, inf}, {exp, -1000, 0, 0},     {exp, -inf, 0, 0},    {log, 0, -inf, inf},
                      {log, -1, nan, -1},    {log, inf, inf, 0},     {tanh, 1000, 1, 0},   {tanh, -1000, -1, 0},
                      {sigmoid, 1000, 1, 0}, {sigmoid, -1000, 0, 0}, {sigmoid, inf, 1, 0}, {sigmoid, -inf, 0, 0}};
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const End& end : ends) {
      Tensor x = Tensor::from(std::vector<double>{end.x}, {});
      x.set_requires_grad(true);
      const Tensor y = end.op(cast(x, dtype));
      backward(y, cast(Tensor::from(std::vector<double>{1}, {}), dtype));
      CAPTURE(end.x);
      CAPTURE(std::string(name(dtype)));
      CHECK(same(y.item(), end.y));
      CHECK(same(x.grad().item(), end.slope));
    }
  }
}

TEST_CASE("argmax takes the first of equal numbers, and nothing of a row with a NaN") {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> rows = {3, 7, 7, -inf, -inf, -inf, inf, 1, inf, 1, nan, inf, nan, 1, 2, -1, -2, -1};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CHECK(argmax(cast(Tensor::from(rows, {3, 2, 3}), dtype)).to_vector<int32_t>() ==
          std::vector<int32_t>{1, 0, 0, -1, -1, 0});
  }
  CHECK(error_of([] { argmax(Tensor::zeros({2, 0}, DType::f32)); }).ends_with("rows of 1 to 2147483646 numbers"));
}

TEST_CASE("mse_loss of a prediction in 16 bits is f32, and its gradient has the prediction's type") {
  const Tensor target = Tensor::from(std::vector<float>{-400, 1, 2}, {3});
  Tensor x = Tensor::from(std::vector<float>{400, 1, 5}, {3});
  x.set_requires_grad(true);
  const Tensor loss = mse_loss(cast(x, DType::f16), target);
  CHECK(loss.item() == (640000 + 9) / 3.0f);
  backward(loss);
  CHECK(
      x.grad().to_vector<float>() ==
      cast(cast(Tensor::from(std::vector<float>{1600 / 3.0f, 0, 2}, {3}), DType::f16), DType::f32).to_vector<float>());
  const auto message = [&](const Tensor& prediction) { return error_of([&] { mse_loss(prediction, target); }); };
  CHECK(message(Tensor::zeros({3, 1}, DType::f32)) ==
        "mse_loss: prediction is f32 (3, 1) and target f32 (3); expected one shape, not empty, and cast() to one type");
  CHECK(message(Tensor::zeros({3}, DType::f64)).starts_with("mse_loss: prediction is f64 (3) and target f32 (3)"));
  CHECK(error_of([&] { transpose(target); }).starts_with("transpose: x is (3), expected a matrix"));
  CHECK(error_of([&] { sub(target, target.reshape({1, 3})); }) == "sub: a is f32 (3) but b is f32 (1, 3)");
}

// x86-64 computes with subnormals a hundred times slower.
TEST_CASE("the mean, square and velocity of a parameter without gradient decay to zero, and not to a subnormal") {
  constexpr float smallest = std::numeric_limits<float>::min();
  const auto filled = [](float value) { return Tensor::from(std::vector<float>(100, value), {100}); };
  const Tensor gradient = filled(0);
  const AdamRule adam = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0, .decoupled = false};
  const SgdRule sgd = {.momentum = 0.9f, .weight_decay = 0};
  Tensor rates = Tensor::from(std::vector<float>(step_rates, 1.0f), {step_rates});
  rates.mutable_data<float>()[rate_skip] = 0;
  Tensor mean = filled(smallest), square = filled(smallest), velocity = filled(smallest), value = filled(1);
  for (int step = 0; step < 3; ++step) {
    adam_step({.gradient = gradient, .rule = adam, .rates = rates, .mean = mean, .square = square, .value = value});
    sgd_step({.gradient = gradient, .rule = sgd, .rates = rates, .velocity = velocity, .value = value});
  }
#if defined(__x86_64__) || defined(__aarch64__)
  for (const Tensor& kept : {mean, square, velocity}) {
    for (const float number : kept.to_vector<float>()) CHECK(std::fpclassify(number) != FP_SUBNORMAL);
  }
#endif
  volatile float half = smallest;
  half = half / 2;
  CHECK(half > 0);  // only the optimizers treat subnormals as zero
}

TEST_CASE("indices of 32 bits: division by multiplication is exact, and launches are cut where indices would end") {
  for (const int64_t divisor : {1, 2, 3, 5, 6, 7, 9, 10, 32, 63, 784, 65535, 65536, 65537, 1 << 30, INT32_MAX}) {
    const Divisor by(divisor);
    const auto check = [&](int64_t n) {
      if (n < 0 || n > max_indices) return;
      const auto [quotient, remainder] = by.divide(static_cast<uint32_t>(n));
      CAPTURE(n);
      CHECK((quotient == n / divisor && remainder == n % divisor));
    };
    INFO("divisor ", divisor);
    for (int64_t k = 0; k <= max_indices / divisor; k += 1 + k / 7) {
      for (const int64_t beside : {-1, 0, 1}) check(k * divisor + beside);
    }
    for (int64_t n = max_indices; n > max_indices - 100; --n) check(n);
  }
  CHECK(images_per_launch("op", 10, 784) == 10);
  CHECK(images_per_launch("op", 10, max_indices / 3) == 3);
  CHECK(images_per_launch("op", 10, max_indices) == 1);
  CHECK(images_per_launch("op", 0, 0) == 1);
  CHECK_THROWS_WITH_AS(images_per_launch("op", 10, max_indices + 1),
                       "op: an image has 2147483648 elements, expected at most 2147483647 on this device; cut it into "
                       "smaller ones",
                       Error);
}

}  // namespace hs::test
