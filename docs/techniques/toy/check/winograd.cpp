// The toy's F(4, 3) computes the engine's convolution, and its errors in one direction are those that the engine's
// "winograd" allows in two.
#define main main_of_winograd
#include "docs/techniques/toy/winograd.cpp"
#undef main

#include <doctest/doctest.h>

#include "kernels/conv2d/conv2d.h"
#include "tests/support/checks.h"

TEST_CASE("toy: Winograd") {
  const Transforms t = transforms({0, 1, -1, 2, -2, INFINITY});
  constexpr int64_t channels = 16;
  unsigned state = 3;
  int products = 0;
  for (int tile = 0; tile < 20; ++tile) {
    const Row d = numbers(6, state), g = numbers(3, state), y = winograd(t, d, g, products);
    // The second of three rows, of the first of 16 channels.
    std::vector<float> image(3 * 6 * channels), weight(9 * channels * channels);
    for (size_t i = 0; i < d.size(); ++i) image[(6 + i) * channels] = d[i];
    for (size_t j = 0; j < g.size(); ++j) weight[(3 + j) * channels * channels] = g[j];
    const hs::test::ForcedVariant forced(hs::conv2d_forward, "winograd");
    const hs::Tensor result = hs::conv2d(hs::Tensor::from(image, {1, 3, 6, channels}),
                                         hs::Tensor::from(weight, {9 * channels, channels}), {});
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::abs(y[i] - result.to_vector<float>()[i * channels]) < 3e-6f);
  }
  const Row d = {5, -7, 2, 8, -3, 1}, g = {24, -72, 168};  // G g are integers
  const Row y = winograd(t, d, g, products);
  for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == definition<float>(d, g, i));

  const hs::VariantBase* variant = hs::conv2d_forward.variants();
  while (std::string(variant->name) != "winograd") variant = variant->next;
  CHECK(growth(t) * growth(t) == doctest::Approx(variant->error_growth).epsilon(0.03));
  CHECK(main_of_winograd() == 0);
}
