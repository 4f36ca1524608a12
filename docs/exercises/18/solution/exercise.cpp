#include "docs/exercises/18/exercise.h"

#include <stdexcept>

namespace exercise {

Matrix product(const Matrix& a, const Matrix& b, Transposed a_is, Transposed b_is) {
  const bool ta = a_is == Transposed::yes, tb = b_is == Transposed::yes;
  const size_t rows = ta ? a.columns : a.rows, inner = ta ? a.rows : a.columns, columns = tb ? b.rows : b.columns;
  if (inner != (tb ? b.columns : b.rows)) throw std::invalid_argument("product: the inner sizes differ");
  Matrix c{rows, columns};
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      for (size_t k = 0; k < inner; ++k) c.at(i, j) += (ta ? a.at(k, i) : a.at(i, k)) * (tb ? b.at(j, k) : b.at(k, j));
    }
  }
  multiplications += static_cast<long long>(rows * columns * inner);
  return c;
}

namespace {

constexpr Transposed yes = Transposed::yes, no = Transposed::no;

double factor(const Lora& lora) { return lora.alpha / static_cast<double>(lora.a.rows); }

Matrix add(Matrix sum, const Matrix& term, double scale) {
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += scale * term.values[i];
  return sum;
}

Matrix times(double scale, Matrix matrix) {
  for (double& value : matrix.values) value *= scale;
  return matrix;
}

}  // namespace

Matrix forward(const Lora& lora, const Matrix& x, Matrix& down) {
  down = product(x, lora.a, no, yes);
  return add(product(x, lora.w), product(down, lora.b, no, yes), factor(lora));
}

Gradients backward(const Lora& lora, const Matrix& x, const Matrix& down, const Matrix& dy) {
  const Matrix ddown = times(factor(lora), product(dy, lora.b));  // (N, r)
  return {.a = product(ddown, x, yes),
          .b = times(factor(lora), product(dy, down, yes)),
          .x = add(product(dy, lora.w, no, yes), product(ddown, lora.a), 1)};
}

Matrix merged(const Lora& lora) {
  // (B A)^T, because W is (in, out) and B A is (out, in).
  return add(lora.w, product(lora.a, lora.b, yes, yes), factor(lora));
}

}  // namespace exercise
