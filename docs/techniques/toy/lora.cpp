// LoRA: a frozen weight W (in, out) and two thin matrices that are trained, A (r, in) and B (out, r).
//
//   y = x W + (alpha / r) (x A') B'
//
// B starts at zero, so that the first step begins with the network as it was; A does not, or neither would have a
// gradient. With g = dL/dy:  dB = (alpha / r) g' (x A'),  dA = (alpha / r) (g B)' x.  W has no gradient. At the end
// (alpha / r) A' B', which is (in, out), is added to W. Here x W + x T, with a T of rank 1, is to be learned by least
// squares.
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int in = 6, out = 5, rank = 2, samples = 32;
constexpr float alpha = 4, factor = alpha / rank;
using Matrix = std::vector<float>;  // row-major

// C (rows, columns) = A (rows, inner) B (inner, columns); a row of A begins a_row numbers after the one before, and its
// numbers are a_step apart, so that a matrix can be read as its transpose.
Matrix product(int rows, int inner, int columns, const Matrix& a, int a_row, int a_step, const Matrix& b, int b_row,
               int b_step) {
  Matrix c(rows * columns);
  for (int i = 0; i < rows; ++i) {
    for (int k = 0; k < inner; ++k) {
      for (int j = 0; j < columns; ++j) c[i * columns + j] += a[i * a_row + k * a_step] * b[k * b_row + j * b_step];
    }
  }
  return c;
}

struct Adapters {
  Matrix A, B;  // (rank, in) and (out, rank)
};

Matrix forward(const Matrix& x, const Matrix& W, const Adapters& adapters) {
  Matrix y = product(samples, in, out, x, in, 1, W, out, 1);
  const Matrix low = product(samples, in, rank, x, in, 1, adapters.A, 1, in);           // x A', (samples, rank)
  const Matrix added = product(samples, rank, out, low, rank, 1, adapters.B, 1, rank);  // (x A') B'
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * added[i];
  return y;
}

// dA and dB without the factor.
Adapters backward(const Matrix& x, const Adapters& adapters, const Matrix& dy) {
  const Matrix low = product(samples, in, rank, x, in, 1, adapters.A, 1, in);
  const Matrix dlow = product(samples, out, rank, dy, out, 1, adapters.B, rank, 1);  // g B
  return {product(rank, samples, in, dlow, 1, rank, x, in, 1), product(out, samples, rank, dy, 1, out, low, rank, 1)};
}

Matrix merged(const Matrix& W, const Adapters& adapters) {
  const Matrix change = product(in, rank, out, adapters.A, 1, in, adapters.B, 1, rank);  // A' B'
  Matrix sum = W;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * change[i];
  return sum;
}

Matrix numbers(int count, unsigned state) {
  Matrix values(count);
  for (float& x : values) x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  return values;
}

float distance(const Matrix& a, const Matrix& b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::fmax(largest, std::fabs(a[i] - b[i]));
  return largest;
}

}  // namespace

int main() {
  const Matrix x = numbers(samples * in, 1), W = numbers(in * out, 2), column = numbers(in, 3), row = numbers(out, 4);
  Matrix target = W;
  for (int i = 0; i < in * out; ++i) target[i] += column[i / out] * row[i % out];
  const Matrix wanted = product(samples, in, out, x, in, 1, target, out, 1);
  Adapters adapters = {numbers(rank * in, 5), Matrix(out * rank)};
  const bool same = forward(x, W, adapters) == product(samples, in, out, x, in, 1, W, out, 1);
  const float before = distance(forward(x, W, adapters), wanted);
  for (int step = 0; step < 300; ++step) {
    Matrix dy = forward(x, W, adapters);
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = (dy[i] - wanted[i]) / samples;
    const Adapters gradient = backward(x, adapters, dy);
    for (size_t i = 0; i < adapters.A.size(); ++i) adapters.A[i] -= 0.2f * factor * gradient.A[i];
    for (size_t i = 0; i < adapters.B.size(); ++i) adapters.B[i] -= 0.2f * factor * gradient.B[i];
  }
  const float after = distance(forward(x, W, adapters), wanted);
  const Matrix with_merged = product(samples, in, out, x, in, 1, merged(W, adapters), out, 1);
  const float merge = distance(with_merged, forward(x, W, adapters));
  std::printf("starts as W alone: %d; error %.4f before, %.1e after; merged differs by %.1e\n", same, before, after,
              merge);
  std::printf("%d trained numbers in place of %d\n", rank * (in + out), in * out);
  return same && after < 0.01f * before && merge < 1e-5f ? 0 : 1;
}
