// Exercise 16, of docs/techniques/gemm.md: a product of matrices by register tiles. The score is the number of
// loads. Edit exercise.cpp beside this file, then run tests/exercise 16.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace exercise {

// (rows, columns), in row-major order. Counts what is read and written, as a memory would, and throws out of bounds.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns) : rows(rows), columns(columns), values_(static_cast<size_t>(rows * columns)) {}
  const int64_t rows, columns;
  mutable int64_t loads = 0;
  int64_t stores = 0;

  float load(int64_t row, int64_t column) const {
    ++loads;
    return values_[index(row, column)];
  }
  void store(int64_t row, int64_t column, float value) {
    ++stores;
    values_[index(row, column)] = value;
  }

 private:
  size_t index(int64_t row, int64_t column) const {
    if (row < 0 || row >= rows || column < 0 || column >= columns) throw std::out_of_range("no such element");
    return static_cast<size_t>(row * columns + column);
  }
  std::vector<float> values_;
};

constexpr int64_t tile_rows = 4, tile_columns = 8;

// c = a b, with a (M, K), b (K, N) and c (M, N) of any sizes, also 0. Each tile of 4 x 8 elements of c, smaller at
// the edges, is computed in local variables: for each k, 4 elements of a and 8 of b are loaded once, and used 32 times.
//
//   loads of a:   M K ceil(N / 8)        loads of b:   K N ceil(M / 4)
//   c:            each element is stored once, and none is loaded
//
// Products are added in the order of k, beginning with 0, in f32: the bits are those of three plain loops.
// REQUIRES: a.columns == b.rows, and c has the product's shape
void multiply(const Matrix& a, const Matrix& b, Matrix& c);

}  // namespace exercise
