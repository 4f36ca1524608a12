// Winograd's F(m, 3): m neighbouring results of a filter of 3 taps from m + 2 products, in place of 3 m.
//
//   y[i] = g[0] d[i] + g[1] d[i + 1] + g[2] d[i + 2],  i < m     is     y = A' (G g * B' d),  * point by point
//
// Why: the product of two polynomials, with 3 and with m coefficients, has m + 2, and its values at m + 2 points tell
// it. So a polynomial can be multiplied by g in three steps: evaluate it (A), multiply by the values of g (G g), and
// interpolate (B). That is a linear map from m numbers to m + 2. Its transpose is the filter: B' d, the same products,
// A'. Any points will do; with larger ones, or more of them, the constants grow, and with them the rounding errors.
//
// A product is counted where data meets weights. The transforms multiply by constants; in a layer with many channels
// G g is computed once for each filter, B' d once for all filters, and A' once for the sum over the channels.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

using Row = std::vector<float>;
using Rows = std::vector<Row>;  // one for each point

float dot(const Row& a, const Row& b) {
  float sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// What the coefficients of a polynomial are multiplied by for its value. At infinity that is the last coefficient.
Row powers(float point, size_t count) {
  Row row(count);
  row[std::isinf(point) ? count - 1 : 0] = 1;
  for (size_t e = 1; e < count && !std::isinf(point); ++e) row[e] = row[e - 1] * point;
  return row;
}

struct Transforms {
  Rows B, G, A;  // (n, n), (n, 3) and (n, n - 2) for n points
};

Transforms transforms(const Row& points) {
  const size_t n = points.size();
  Transforms t;
  for (const float point : points) {
    Row& b = t.B.emplace_back(n);  // the coefficients of the polynomial that is 0 at all other points
    b[0] = 1;
    for (const float other : points) {
      if (other == point || std::isinf(other)) continue;
      for (size_t e = n; e-- > 0;) b[e] = (e > 0 ? b[e - 1] : 0) - other * b[e];  // times x - other
    }
    Row& g = t.G.emplace_back(powers(point, 3));
    for (float& x : g) x /= dot(powers(point, n), b);  // so that b is 1 at its own point
    t.A.push_back(powers(point, n - 2));
  }
  return t;
}

Row winograd(const Transforms& t, const Row& d, const Row& g, int& products) {
  Row y(d.size() - 2);
  for (size_t p = 0; p < d.size(); ++p, ++products) {
    const float product = dot(t.G[p], g) * dot(t.B[p], d);
    for (size_t i = 0; i < y.size(); ++i) y[i] += t.A[p][i] * product;
  }
  return y;
}

template <class T>  // what it computes in
T definition(const Row& d, const Row& g, size_t i) {
  return T{g[0]} * T{d[i]} + T{g[1]} * T{d[i + 1]} + T{g[2]} * T{d[i + 2]};
}

// How much larger than the three terms of the definition those are that A' adds up, for random d and g: the root of
// their variances. What is too much cancels in y, and the rounding errors that it came with do not.
float growth(const Transforms& t) {
  Row variances(t.A[0].size());
  for (size_t p = 0; p < t.A.size(); ++p) {
    for (size_t i = 0; i < variances.size(); ++i) {
      variances[i] += t.A[p][i] * t.A[p][i] * dot(t.B[p], t.B[p]) * dot(t.G[p], t.G[p]);
    }
  }
  return std::sqrt(*std::ranges::max_element(variances) / 3);
}

Row numbers(size_t count, unsigned& state) {
  Row result(count);
  for (float& x : result) x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  return result;
}

}  // namespace

int main() {
  bool works = true;
  for (const Row& points :
       {Row{0, 1, -1, INFINITY}, {0, 1, -1, 2, -2, INFINITY}, {0, 1, -1, 2, -2, 0.5f, -0.5f, INFINITY}}) {
    const Transforms t = transforms(points);
    const size_t n = points.size(), m = n - 2;
    int products = 0;
    double square = 0, plain_square = 0;  // of the errors
    unsigned state = 1;
    for (int tile = 0; tile < 1000; ++tile) {
      const Row d = numbers(n, state), g = numbers(3, state), y = winograd(t, d, g, products);
      for (size_t i = 0; i < m; ++i) {
        const auto exact = definition<double>(d, g, i);
        square += std::pow(y[i] - exact, 2);
        plain_square += std::pow(definition<float>(d, g, i) - exact, 2);
      }
    }
    const double measured = std::sqrt(square / plain_square);
    std::printf("F(%zu, 3): %d products in place of %zu; errors: terms %.1f times as large, %.1f times measured\n", m,
                products / 1000, 3 * m, growth(t), measured);
    works = works && products == 1000 * static_cast<int>(n) && measured < 2 * growth(t);
  }
  return works ? 0 : 1;
}
