// Attention without its matrix, for one head: online softmax forward, recomputation backward.
//
//   S[i, j] = s q[i] . k[j] for j <= i, s = 1 / sqrt(D);   P = softmax of the rows of S;   y = P v
//
// The keys come block by block. Of each query three things are kept: m, the largest score so far; l, the sum of
// exp(S - m); y, the sum of exp(S - m) v. A larger maximum m' turns exp(S - m) into exp(S - m') by the one factor
// exp(m - m'). At the end y / l, and L = m + log l. Backward has P = exp(S - L) from this one number per row:
//   dP = dy v',  delta[i] = sum over j of P[i, j] dP[i, j] = dy[i] . y[i],  dS = P (dP - delta)
//   dq = s dS k,  dk = s dS' q,  dv = P' dy
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

constexpr int D = 4, k = D, v = 2 * D, row = 3 * D;  // a row of qkv: q at 0, k, and v, D numbers each
constexpr int block = 4;                             // keys
constexpr float s = 0.5f;                            // 1 / sqrt(D)
using Rows = std::vector<float>;                     // qkv (T, 3D), y (T, D)

float dot(const float* a, const float* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]; }
void add(float* to, float factor, const float* from) {
  for (int d = 0; d < D; ++d) to[d] += factor * from[d];
}

struct Forward {
  Rows y, L;  // (T, D) and (T)
};

struct Sums {  // of one query, over the keys so far
  float m = -INFINITY, l = 0, y[D] = {};
};

// Adds the keys from `first` to before `last`.
void add_block(const Rows& qkv, int query, int first, int last, Sums& sums) {
  const float before = sums.m;
  float S[block];
  for (int j = first; j < last; ++j) {
    S[j - first] = s * dot(&qkv[query * row], &qkv[j * row + k]);
    sums.m = std::max(sums.m, S[j - first]);
  }
  const float factor = std::exp(before - sums.m);  // 0 for the first block
  sums.l *= factor;
  for (float& y : sums.y) y *= factor;
  for (int j = first; j < last; ++j) {
    const float p = std::exp(S[j - first] - sums.m);
    sums.l += p;
    add(sums.y, p, &qkv[j * row + v]);
  }
}

Forward forward(const Rows& qkv) {
  const int T = static_cast<int>(qkv.size()) / row;
  Forward result{Rows(T * D), Rows(T)};
  for (int i = 0; i < T; ++i) {
    Sums sums;
    for (int first = 0; first <= i; first += block) {  // no block that begins after the query
      add_block(qkv, i, first, std::min(first + block, i + 1), sums);
    }
    for (int d = 0; d < D; ++d) result.y[i * D + d] = sums.y[d] / sums.l;
    result.L[i] = sums.m + std::log(sums.l);
  }
  return result;
}

Rows backward(const Rows& qkv, const Forward& kept, const Rows& dy) {
  Rows dqkv(qkv.size());
  for (int i = 0; i * row < static_cast<int>(qkv.size()); ++i) {
    const float delta = dot(&dy[i * D], &kept.y[i * D]);
    for (int j = 0; j <= i; ++j) {
      const float p = std::exp(s * dot(&qkv[i * row], &qkv[j * row + k]) - kept.L[i]);
      const float dS = p * (dot(&dy[i * D], &qkv[j * row + v]) - delta);
      add(&dqkv[i * row], s * dS, &qkv[j * row + k]);
      add(&dqkv[j * row + k], s * dS, &qkv[i * row]);
      add(&dqkv[j * row + v], p, &dy[i * D]);
    }
  }
  return dqkv;
}

// The sum of dy y for these q, k and v.
double total(const Rows& qkv, const Rows& dy) {
  const Rows y = forward(qkv).y;
  return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
}

Rows numbers(int count, unsigned state, float size) {
  Rows rows(count);
  for (float& x : rows) x = size * (static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / (1 << 23) - 1);
  return rows;
}

void show_blocks(const Rows& qkv, int query) {
  Sums sums;
  for (int first = 0; first <= query; first += block) {
    const float before = sums.m;
    add_block(qkv, query, first, std::min(first + block, query + 1), sums);
    const auto& [m, l, y] = sums;
    std::printf("keys from %d: m %6.3f, l and y times %.3f; l %.3f, y %6.3f %6.3f %6.3f %6.3f\n", first, m,
                std::exp(before - m), l, y[0], y[1], y[2], y[3]);
  }
}

}  // namespace

int main(int argc, char**) {
  constexpr int T = 11;
  const Rows qkv = numbers(T * row, 1, 2), dy = numbers(T * D, 2, 1), dqkv = backward(qkv, forward(qkv), dy);
  if (argc > 1) show_blocks(qkv, T - 1);  // --show
  Rows up = qkv, down = qkv;
  for (size_t e = 0; e < qkv.size(); ++e) up[e] += 0.01f * dqkv[e], down[e] -= 0.01f * dqkv[e];
  const double square = std::inner_product(dqkv.begin(), dqkv.end(), dqkv.begin(), 0.0);
  const double change = (total(up, dy) - total(down, dy)) / 0.02;  // along the gradient: the square of its length
  std::printf("change along the gradient %.4f, square of its length %.4f\n", change, square);
  const Forward large = forward(numbers(T * row, 1, 60));  // scores beyond 89, where exp overflows
  std::printf("largest L %.0f; numbers kept: %d in place of %d\n", *std::ranges::max_element(large.L), T, T * T);
  return std::abs(change / square - 1) < 1e-2 && large.L.back() > 89 && std::isfinite(large.y.back()) ? 0 : 1;
}
