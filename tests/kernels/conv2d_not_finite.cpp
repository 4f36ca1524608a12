// What conv2d's gradients make of inf and NaN (kernels/conv2d/conv2d.h says it): an overflow that the loss depends on
// must reach the gradients that the scaler looks at, in every variant and type, also where kernels skip zeros.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/autograd.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/conv2d/conv2d.h"
#include "tests/support/checks.h"

namespace hs::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr DType types[] = {DType::f32, DType::f16, DType::bf16};

struct Convolution {
  Shape x;
  int64_t OC;
  Conv2dOptions options;
};

const Convolution convolutions[] = {
    {{2, 5, 5, 1}, 2, {}},
    {{17, 9, 9, 1}, 32, {}},  // conv1 of mnist_cnn: few channels in
    {{2, 5, 6, 2}, 3, {.kernel_h = 2, .kernel_w = 3}},
    {{2, 7, 7, 6}, 20, {.stride = 2, .padding = 1}},
    {{6, 8, 9, 32}, 64, {}},  // conv2 of mnist_cnn
    {{2, 6, 7, 32}, 70, {.padding = 1}},
    {{2, 6, 6, 64}, 40, {.kernel_h = 5, .kernel_w = 3, .padding = 2}},
    {{3, 5, 4, 32}, 16, {.kernel_h = 1, .kernel_w = 1}},
};

// In [-1, 1), about half of them zero if `sparse`, as a ReLU leaves them.
Tensor random_values(const Shape& shape, uint32_t purpose, bool sparse = false) {
  const RandomStream stream{2027, RandomPurpose::init, purpose, 5, 0};
  std::vector<float> values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const bool zero = sparse && random_bits(stream, 2 * i + 1) % 2 == 0;
    values[i] = zero ? 0 : 2 * to_unit_float(random_bits(stream, 2 * i)) - 1;
  }
  return Tensor::from(values, shape);
}

struct Operands {
  Tensor x, weight, bias, dy;
};

Operands operands(const Convolution& c) {
  const Conv2dOptions& o = c.options;
  const int64_t OH = (c.x[1] + 2 * o.padding - o.kernel_h) / o.stride + 1;
  const int64_t OW = (c.x[2] + 2 * o.padding - o.kernel_w) / o.stride + 1;
  return {random_values(c.x, 11, true), random_values({o.kernel_h * o.kernel_w * c.x[3], c.OC}, 12),
          random_values({c.OC}, 13), random_values({c.x[0], OH, OW, c.OC}, 14)};
}

struct Gradients3 {
  Tensor dx, dweight, dbias;
};

// Calls body(variant, gradients) for each variant of conv2d_backward that takes these arguments.
void for_each_backward(const Convolution& c, const Operands& in, DType type,
                       const std::function<void(const std::string&, const Gradients3&)>& body) {
  for (const VariantBase* v = conv2d_backward.variants(); v; v = v->next) {
    if (v->device != Device::cpu) continue;
    const ForcedVariant forced(conv2d_backward, v->name);
    Operands leaves = {in.x.clone(), in.weight.clone(), in.bias.clone(), in.dy};
    for (Tensor* leaf : {&leaves.x, &leaves.weight, &leaves.bias}) leaf->set_requires_grad(true);
    try {
      const Tensor y = conv2d(cast(leaves.x, type), cast(leaves.weight, type), cast(leaves.bias, type), c.options);
      backward(y, cast(leaves.dy, type));
      body(v->name, {leaves.x.grad(), leaves.weight.grad(), leaves.bias.grad()});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::forced_variant) FAIL_CHECK(std::string(error.what()));
    }
  }
}

bool any_not_finite(const Tensor& x) {
  const Numbers values = to_numbers(x);
  return !std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

void put(Tensor& target, int64_t at, double value) {
  target.slice(at, {1}).copy_from(Tensor::from(std::vector<float>{static_cast<float>(value)}, {1}));
}

TEST_CASE("one inf or NaN in dy, or in an x that dy needs, reaches the gradients that the scaler looks at") {
  int runs = 0;
  for (const Convolution& c : convolutions) {
    for (const DType type : types) {
      for (const double bad : {infinity, -infinity, std::nan("")}) {
        for (const bool in_dy : {true, false}) {
          Operands in = operands(c);
          const int64_t at = in_dy ? in.dy.size() / 3 : in.x.size() / 2;
          put(in_dy ? in.dy : in.x, at, bad);
          for_each_backward(c, in, type, [&](const std::string& variant, const Gradients3& got) {
            ++runs;
            INFO(c.x.to_string(), " -> ", c.OC, " ", std::string(name(type)), " ", variant, ": ", bad,
                 in_dy ? " in dy" : " in x");
            CHECK(any_not_finite(got.dweight));
            CHECK(any_not_finite(got.dbias) == in_dy);
            CHECK(any_not_finite(got.dx) == in_dy);
            const Numbers of_weight = to_numbers(got.dweight);
            // The naive variant leaves out the taps that lie in the padding.
            const bool every_tap = variant != "naive" || c.options.padding == 0;
            for (int64_t i = 0; in_dy && i < got.dweight.size(); ++i) {
              const bool same_channel = i % c.OC == at % c.OC,
                         finite = std::isfinite(of_weight[static_cast<size_t>(i)]);
              if (same_channel ? finite && every_tap : !finite) FAIL_CHECK("dweight[", i, "]");
            }
          });
        }
      }
    }
  }
  CHECK(runs >= 200);
}

TEST_CASE("where dy is zero, variants that skip zeros do not see an inf in x, and the others make NaN of it") {
  const Convolution c{{2, 8, 9, 32}, 64, {}};
  for (const DType type : types) {
    Operands in = operands(c);
    put(in.x, in.x.size() / 2, infinity);
    in.dy.fill_zero();
    for_each_backward(c, in, type, [&](const std::string& variant, const Gradients3& got) {
      INFO(std::string(name(type)), " ", variant);
      CHECK(any_not_finite(got.dweight) == !(variant == "direct" || variant == "winograd" || variant == "avx512_bf16"));
    });
  }
}

}  // namespace
}  // namespace hs::test
