// Exercise 18, of docs/techniques/lora.md: a linear layer with a low-rank adapter, its backward, and merging. Edit
// exercise.cpp beside this file, then run tests/exercise 18.
#pragma once

#include <cstddef>
#include <vector>

namespace exercise {

struct Matrix {  // row-major
  size_t rows = 0, columns = 0;
  std::vector<double> values = std::vector<double>(rows * columns);
  double& at(size_t row, size_t column) { return values[row * columns + column]; }
  double at(size_t row, size_t column) const { return values[row * columns + column]; }
  bool operator==(const Matrix&) const = default;
};

enum class Transposed { no, yes };

// a b, with either factor transposed if told so: no copy is needed. Counts the multiplications of all calls in
// `multiplications`. Throws std::invalid_argument if the shapes do not fit.
Matrix product(const Matrix& a, const Matrix& b, Transposed a_is = Transposed::no, Transposed b_is = Transposed::no);
inline long long multiplications = 0;

// y (N, out) = x (N, in) W (in, out) + (alpha / r) (x A^T) B^T, where W is frozen and r is the number of rows of a.
struct Lora {
  Matrix w;     // (in, out)
  Matrix a, b;  // (r, in), (out, r); b begins at 0, so the first y is that of W alone
  double alpha;
};

// REQUIRES of all: shapes that fit. At most N in out + N r (in + out) multiplications: A and B are never multiplied by
// each other. `down` (N, r) is x A^T, which backward needs.
Matrix forward(const Lora& lora, const Matrix& x, Matrix& down);

// dL/dA, dL/dB and dL/dx, given dL/dy. There is no dL/dW. At most N in out + 2 N r (in + out) multiplications.
struct Gradients {
  Matrix a, b, x;
};
Gradients backward(const Lora& lora, const Matrix& x, const Matrix& down, const Matrix& dy);

// One weight (in, out) with which x W is the y of forward: for inference, without the adapter's products.
Matrix merged(const Lora& lora);

}  // namespace exercise
