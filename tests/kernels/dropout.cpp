// dropout's mask: against masks computed in Python (tests/golden/README.md), and the same from every variant and any
// number of threads.
#include <cmath>
#include <limits>
#include <utility>

#include "engine/parallel.h"
#include "kernels/cast/cast.h"
#include "kernels/dropout/dropout.h"
#include "source_dir.h"
#include "tests/support/checks.h"
#include "tests/support/npy.h"

namespace hs::test {
namespace {

const char* const variants[] = {"simple", "simd"};

Tensor masked(const Tensor& x, double rate, const RandomStream& stream, const Tensor& step = {}) {
  Tensor y = x.empty_like();
  dropout_mask({x, rate, stream, step, y});
  return y;
}

std::vector<bool> kept(int64_t size, double rate, const RandomStream& stream) {
  std::vector<bool> result;
  for (const float y : masked(Tensor::from(std::vector<float>(static_cast<size_t>(size), 1), {size}), rate, stream)
                           .to_vector<float>()) {
    result.push_back(y != 0);
  }
  return result;
}

Tensor golden(const char* name) {
  return read_npy(std::filesystem::path(HALFSTEP_SOURCE_DIR) / "tests/golden/dropout" / (std::string(name) + ".npy"));
}

}  // namespace

TEST_CASE("dropout keeps the elements that the golden files say") {
  const Tensor cases = golden("cases"), masks = golden("kept");
  REQUIRE(cases.shape() == Shape{6, 5});
  REQUIRE(masks.shape() == Shape{6, 1000});
  for (size_t c = 0; c < 6; ++c) {
    const auto of_case = values_of<double>(cases).subspan(5 * c, 5);
    const RandomStream stream{static_cast<uint64_t>(of_case[0]), RandomPurpose::dropout,
                              static_cast<uint32_t>(of_case[1]), static_cast<uint32_t>(of_case[2]),
                              static_cast<uint32_t>(of_case[3])};
    const auto expected = values_of<uint8_t>(masks).subspan(1000 * c, 1000);
    for (const char* variant : variants) {
      const ForcedVariant forced(dropout_mask, variant);
      CAPTURE(variant);
      CAPTURE(c);
      CHECK(kept(1000, of_case[4], stream) == std::vector<bool>(expected.begin(), expected.end()));
    }
  }
}

TEST_CASE("an element is kept at the rates up to its number, and dropped beyond") {
  const RandomStream stream{5, RandomPurpose::dropout, 6, 7, 8};
  for (const char* variant : variants) {
    const ForcedVariant forced(dropout_mask, variant);
    CAPTURE(variant);
    for (size_t i = 0; i < 200; ++i) {
      CAPTURE(i);
      const uint32_t word = random_bits(stream, i / 2), number = i % 2 == 0 ? word & 0xffff : word >> 16;
      REQUIRE((number > 0 && number < 65535));
      CHECK(kept(200, number / 65536.0, stream)[i]);
      CHECK_FALSE(kept(200, (number + 1) / 65536.0, stream)[i]);
    }
  }
}

TEST_CASE("the variants of dropout agree bit by bit, for any size, type, alignment and number of threads") {
  const Poisoned poisoned;
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const RandomStream stream{9, RandomPurpose::dropout, 1, 2, 3};
  std::vector<int64_t> sizes = {16383, 16384, 16385, 50001};  // around the grain, and several pieces
  for (int64_t size = 0; size <= 300; ++size) sizes.push_back(size);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    CAPTURE(std::string(name(dtype)));
    for (const int64_t size : sizes) {
      CAPTURE(size);
      std::vector<float> values;
      for (int64_t i = 0; i < size + 1; ++i) {
        values.push_back(i % 50 == 7    ? nan
                         : i % 50 == 18 ? infinity
                         : i % 50 == 29 ? -0.0f
                                        : static_cast<float>(i % 97) - 48.3f);
      }
      const Tensor x = cast(Tensor::from(values, {size + 1}), dtype).slice(1, {size});
      const Tensor step = Tensor::from(std::vector<int32_t>{5}, {});
      Tensor expected;
      for (const char* variant : variants) {
        const ForcedVariant forced(dropout_mask, variant);
        for (const int threads : {1, 2, 5}) {
          if (threads > 1 && size < 16384) continue;  // one piece
          set_threads(threads);
          const Tensor y = masked(x, 0.3, stream, step);
          set_threads(0);
          if (!expected.defined()) expected = y;
          INFO(variant, ", ", threads, " threads");
          CHECK(same_bytes(y, expected));
        }
      }
    }
  }
}

TEST_CASE("a dropped element is +0 whatever it was, and a kept one stays NaN or infinite") {
  const RandomStream stream{9, RandomPurpose::dropout, 0, 0, 0};
  const std::vector<bool> keeps = kept(1000, 0.5, stream);
  for (const char* variant : variants) {
    const ForcedVariant forced(dropout_mask, variant);
    CAPTURE(variant);
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -1.0f}) {
      const auto y = masked(Tensor::from(std::vector<float>(1000, value), {1000}), 0.5, stream).to_vector<float>();
      for (size_t i = 0; i < y.size(); ++i) {
        CAPTURE(i);
        if (keeps[i]) CHECK((std::isnan(value) ? std::isnan(y[i]) : y[i] == 2 * value));
        if (!keeps[i]) CHECK((y[i] == 0 && !std::signbit(y[i])));
      }
    }
  }
}

TEST_CASE("the rate is rounded to a multiple of 2^-16, never to 0 or 1, and the scale keeps the mean") {
  const std::vector<std::pair<double, uint32_t>> thresholds = {
      {0, 0},      {0.5, 32768},      {0.25, 16384},       {0.1, 6554},         {0.9, 58982},
      {1e-300, 1}, {0x1p-17, 1},      {1.49 * 0x1p-16, 1}, {1.51 * 0x1p-16, 2}, {1 - 0x1p-16, 65535},
      {1e-9, 1},   {1 - 1e-9, 65535}, {1 - 0x1p-53, 65535}};
  for (const auto& row : thresholds) {
    const double rate = row.first;
    const uint32_t threshold = row.second;
    CAPTURE(rate);
    CHECK(dropout_threshold(rate) == threshold);
    CHECK(dropout_scale(rate) * (1 - threshold / 65536.0) == doctest::Approx(1).epsilon(1e-15));
  }
  CHECK(dropout_scale(0.5) == 2);
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  CHECK(dropout(x, 0, {}).to_vector<float>() == x.to_vector<float>());
  CHECK(masked(x, 0, {}).to_vector<float>() == x.to_vector<float>());
}

TEST_CASE("a rate near 0 drops an element now and then, and a rate near 1 keeps one") {
  constexpr int64_t size = 1 << 20;  // on average 16 of them
  for (const char* variant : variants) {
    const ForcedVariant forced(dropout_mask, variant);
    CAPTURE(variant);
    for (const double rate : {1e-9, 1 - 1e-9}) {
      CAPTURE(rate);
      const std::vector<bool> keeps = kept(size, rate, {1, RandomPurpose::dropout, 0, 0, 0});
      const auto rare = std::count(keeps.begin(), keeps.end(), rate > 0.5);
      CHECK(rare > 0);
      CHECK(rare < 16 + 5 * 4);
    }
  }
}

}  // namespace hs::test
