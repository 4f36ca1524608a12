// Exercise 23, of docs/chapters/04_cpu_kernels.md: a filter of three taps with half of the products, by Winograd's
// F(4, 3). The score is the number of products. Edit exercise.cpp beside this file, then run tests/exercise 23.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace exercise {

struct Check;  // in check.cpp: puts values in and takes them out

// An f32 number whose arithmetic is counted. To multiply it by a constant is free: transforms do that.
class Number {
 public:
  Number() = default;  // 0
  Number& operator+=(const Number& other) { return *this = *this + other; }
  Number& operator-=(const Number& other) { return *this = *this - other; }
  friend Number operator+(const Number& a, const Number& b) { return ++additions, Number(a.value_ + b.value_); }
  friend Number operator-(const Number& a, const Number& b) { return ++additions, Number(a.value_ - b.value_); }
  friend Number operator*(const Number& a, const Number& b) { return ++products, Number(a.value_ * b.value_); }
  friend Number operator*(float constant, const Number& a) { return Number(constant * a.value_); }
  friend Number operator-(const Number& a) { return Number(-a.value_); }

 private:
  friend struct Check;
  explicit Number(float value) : value_(value) {}
  static inline int64_t products = 0, additions = 0;
  float value_ = 0;
};

using Signal = std::vector<Number>;

// For filter k and i = 0, ..., n - 1, with n = size of a signal of d - 2:
//
//   y[k][i] = sum over c of g[k][c][0] d[c][i] + g[k][c][1] d[c][i + 1] + g[k][c][2] d[c][i + 2]
//
// d (channels, n + 2) and g (filters, channels, 3) are not empty, and n >= 0; returns y (filters, n).
//
//   products    at most 6 ceil(n / 4) for each filter and channel, where the definition has 3 n
//   additions   fewer than the definition's, for 64 results of 16 filters and 16 channels: transform each weight once,
//               each piece of d once for all filters, and each result once for all channels
//   errors      at most 8 times those of the definition, as root mean squares, for random numbers
//
// Four results are y = A' (G g * B' d), * number by number, with a row for each point in these (or choose other
// points):
//
//   point        B'                         G                    A, whose transpose is A'
//    0           4   0  -5   0   1   0       1/4    0     0       1   0   0   0
//    1           0  -4  -4   1   1   0      -1/6  -1/6  -1/6      1   1   1   1
//   -1           0   4  -4  -1   1   0      -1/6   1/6  -1/6      1  -1   1  -1
//    2           0  -2  -1   2   1   0      1/24  1/12   1/6      1   2   4   8
//   -2           0   2  -1  -2   1   0      1/24 -1/12   1/6      1  -2   4  -8
//    infinity    0   4   0  -5   0   1        0     0     1       0   0   0   1
std::vector<Signal> filter(const std::vector<Signal>& d, const std::vector<std::vector<Signal>>& g);

}  // namespace exercise
