// tests/exercise 15 compiles this with an exercise.cpp and runs it.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "docs/exercises/15/exercise.h"
#include "docs/exercises/vectors.h"

using exercise::Shape;

namespace {

constexpr float unwritten = std::numeric_limits<float>::quiet_NaN();

// Integers, so that every sum below is exact.
std::vector<float> integers(int64_t count, int64_t factor) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * factor % 17 - 8));
  return values;
}

// After the matrix and the image come 64 values that must stay as they are.
std::vector<float> im2col(const Shape& s, const std::vector<float>& image) {
  std::vector<float> matrix(static_cast<size_t>(s.rows() * s.columns()), unwritten);
  matrix.resize(matrix.size() + 64, 77);
  exercise::im2col(s, image.data(), matrix.data());
  for (size_t i = matrix.size() - 64; i < matrix.size(); ++i)
    REQUIRE_MESSAGE(matrix[i] == 77, "im2col writes behind the matrix");
  matrix.resize(matrix.size() - 64);
  return matrix;
}

std::vector<float> col2im(const Shape& s, const std::vector<float>& matrix) {
  std::vector<float> image(static_cast<size_t>(s.height * s.width * s.channels), unwritten);
  image.resize(image.size() + 64, 77);
  exercise::col2im(s, matrix.data(), image.data());
  for (size_t i = image.size() - 64; i < image.size(); ++i)
    REQUIRE_MESSAGE(image[i] == 77, "col2im writes behind the image");
  image.resize(image.size() - 64);
  return image;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

template <class Check>
void for_shapes(const Check& check) {
  for (int64_t kernel = 1; kernel <= 4; ++kernel) {
    for (int64_t stride = 1; stride <= 3; ++stride) {
      for (int64_t pad = 0; pad < kernel; ++pad) {
        for (const int64_t channels : {1, 3}) {
          INFO("nan: an element that was not written");
          INFO("image 7 x 5, kernel ", kernel, ", stride ", stride, ", pad ", pad, ", ", channels, " channels");
          check(Shape{7, 5, channels, kernel, stride, pad});
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("a small one, by hand") {
  const Shape s{.height = 2, .width = 3, .channels = 1, .kernel = 2, .pad = 1};
  const std::vector<float> image = {1, 2, 3, 4, 5, 6};
  CHECK(im2col(s, image) == std::vector<float>{0, 0, 0, 1, 0, 0, 1, 2, 0, 0, 2, 3, 0, 0, 3, 0,  //
                                               0, 1, 0, 4, 1, 2, 4, 5, 2, 3, 5, 6, 3, 0, 6, 0,  //
                                               0, 4, 0, 0, 4, 5, 0, 0, 5, 6, 0, 0, 6, 0, 0, 0});
  const std::vector<float> in_four_windows = {4, 8, 12, 16, 20, 24};
  CHECK(col2im(s, im2col(s, image)) == in_four_windows);
}

TEST_CASE("matrix times weights is the convolution") {
  for_shapes([](const Shape& s) {
    const std::vector<float> image = integers(s.height * s.width * s.channels, 5), weights = integers(s.columns(), 7);
    const std::vector<float> matrix = im2col(s, image);
    for (int64_t row = 0; row < s.rows(); ++row) {
      INFO("row ", row, " of the matrix: pixel (", row / s.out_width(), ", ", row % s.out_width(), ") of the result");
      double direct = 0, product = 0;
      for (int64_t i = 0; i < s.columns(); ++i) {
        const int64_t h = row / s.out_width() * s.stride + i / s.channels / s.kernel - s.pad;
        const int64_t w = row % s.out_width() * s.stride + i / s.channels % s.kernel - s.pad;
        product += double{matrix[static_cast<size_t>(row * s.columns() + i)]} * weights[static_cast<size_t>(i)];
        if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
        const int64_t pixel = (h * s.width + w) * s.channels + i % s.channels;
        direct += double{image[static_cast<size_t>(pixel)]} * weights[static_cast<size_t>(i)];
      }
      REQUIRE(product == direct);
    }
  });
}

TEST_CASE("col2im is the transpose: <im2col(x), m> = <x, col2im(m)>, exactly") {
  for_shapes([](const Shape& s) {
    const std::vector<float> x = integers(s.height * s.width * s.channels, 5), m = integers(s.rows() * s.columns(), 11);
    REQUIRE(dot(im2col(s, x), m) == dot(x, col2im(s, m)));
  });
}
