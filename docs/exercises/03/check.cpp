// tests/exercise 03 compiles this with an exercise.cpp and runs it.
#include "docs/exercises/03/exercise.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cast/cast.h"
#include "kernels/relu/relu.h"

using namespace hs;

namespace {

using Limits = std::numeric_limits<float>;

const std::vector<float> numbers = {0,
                                    -0.0f,
                                    1,
                                    -1,
                                    Limits::min(),
                                    -Limits::min(),
                                    Limits::denorm_min(),
                                    1e30f,
                                    -2e9f,
                                    0.25f,
                                    Limits::infinity(),
                                    -Limits::infinity(),
                                    Limits::quiet_NaN(),
                                    -Limits::quiet_NaN()};

// The variant that ran, and the bits of the results.
std::string run(int64_t size, std::vector<uint32_t>& bits) {
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(numbers[static_cast<size_t>(i) % numbers.size()]);
  const Tensor x = Tensor::from(values, {size});
  Tensor y = x.empty_like();
  const std::string variant = relu_forward({x, y}).name;
  bits.clear();
  for (const float value : y.to_vector<float>()) bits.push_back(std::bit_cast<uint32_t>(value));
  return variant;
}

}  // namespace

TEST_CASE("`mine` is chosen for f32, and has the bits of `simple`") {
  for (const int64_t size : {1, 13, 14, 1000, 100'003}) {
    INFO(size, " numbers");
    std::vector<uint32_t> mine, simple;
    CHECK(run(size, mine) == "mine");
    relu_forward.force("simple");
    CHECK(run(size, simple) == "simple");
    relu_forward.force(nullptr);
    int64_t differences = 0;
    for (size_t i = 0; i < mine.size(); ++i) {
      if (mine[i] != simple[i] && ++differences == 1)
        WARN_MESSAGE(false, "relu(", numbers[i % numbers.size()], ") differs");
    }
    CHECK(differences == 0);
  }
}

TEST_CASE("other types go to the variants below it") {
  for (const DType type : {DType::f16, DType::bf16}) {
    INFO(name(type));
    const Tensor x = cast(Tensor::from(std::vector<float>{-1, 2}, {2}), type);
    Tensor y;
    CHECK_NOTHROW(y = cast(relu(x), DType::f32));
    if (y.defined()) CHECK(y.to_vector<float>() == std::vector<float>{0, 2});
  }
}
