// Optimizers of one tensor w with gradient g, in step t = 1, 2, ...; lr, b1, b2, eps, wd and trust are settings.
//
//   Adam   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= lr m^ / (sqrt(v^) + eps),  m^ = m / (1 - b1^t), v^ alike
//          For a constant g, m is (1-b1) (1 + b1 + ... + b1^(t-1)) g = (1 - b1^t) g: the correction divides that out.
//   L2     adds wd w to g, so Adam divides the decay by sqrt(v^), too;  AdamW: w *= 1 - lr wd, for all alike
//   LARS   w -= lr ratio (g + wd w), ratio = trust |w| / (|g| + wd |w|);  momentum as usual
//   LAMB   u = m^ / (sqrt(v^) + eps) + wd w;  w -= lr ratio u, ratio = |w| / |u|
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using Numbers = std::vector<double>;

struct Settings {
  double lr = 0.1, b1 = 0.9, b2 = 0.999, eps = 1e-8, wd = 0, momentum = 0.9, trust = 1e-3;
  bool correct = true;  // false: no bias correction
};

double norm(const Numbers& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

class Optimizer {
 public:
  Optimizer(std::string name, const Settings& settings, size_t size)
      : name_(std::move(name)), s_(settings), m_(size), v_(size) {}

  void step(Numbers& w, const Numbers& g) {
    ++t_;
    Numbers u(w.size());  // what is subtracted, over the rate
    for (size_t i = 0; i < w.size(); ++i) u[i] = name_ == "lars" ? g[i] + s_.wd * w[i] : adam(i, w[i], g[i]);
    double ratio = 1;
    if (name_ == "lars") ratio = s_.trust * norm(w) / (norm(g) + s_.wd * norm(w));
    if (name_ == "lamb") ratio = norm(w) / norm(u);
    for (size_t i = 0; i < w.size(); ++i) {
      if (name_ == "adamw") w[i] *= 1 - s_.lr * s_.wd;
      if (name_ == "lars") u[i] = v_[i] = s_.momentum * v_[i] + s_.lr * ratio * u[i];
      w[i] -= name_ == "lars" ? u[i] : s_.lr * ratio * u[i];
    }
  }

 private:
  double adam(size_t i, double w, double g) {
    if (name_ == "adam") g += s_.wd * w;
    m_[i] = s_.b1 * m_[i] + (1 - s_.b1) * g;
    v_[i] = s_.b2 * v_[i] + (1 - s_.b2) * g * g;
    const double m = s_.correct ? m_[i] / (1 - std::pow(s_.b1, t_)) : m_[i];
    const double v = s_.correct ? v_[i] / (1 - std::pow(s_.b2, t_)) : v_[i];
    return m / (std::sqrt(v) + s_.eps) + (name_ == "lamb" ? s_.wd * w : 0);
  }

  std::string name_;
  Settings s_;
  int t_ = 0;
  Numbers m_, v_;
};

// How far one step moves w.
Numbers first_step(const std::string& name, const Settings& settings, const Numbers& w, const Numbers& g) {
  Numbers moved = w;
  Optimizer(name, settings, w.size()).step(moved, g);
  for (size_t i = 0; i < w.size(); ++i) moved[i] -= w[i];
  return moved;
}

}  // namespace

int main() {
  const Numbers with = first_step("adam", {}, {1, 1}, {1e-3, 1e3}),
                without = first_step("adam", {.correct = false}, {1, 1}, {1e-3, 1e3});
  std::printf("Adam, gradients 0.001 and 1000: first step %.3f and %.3f; without correction %.3f\n", with[0], with[1],
              without[1]);
  Numbers l2 = {1, 1}, decoupled = {1, 1};  // large and small gradients whose mean is 0
  Optimizer adam("adam", {.lr = 0.01, .wd = 0.1}, 2), adamw("adamw", {.lr = 0.01, .wd = 0.1}, 2);
  for (int t = 0; t < 100; ++t) adam.step(l2, {t % 2 ? 10. : -10., 0}), adamw.step(decoupled, {t % 2 ? 10. : -10., 0});
  std::printf("decay of a weight with noisy gradients: L2 to %.3f, decoupled to %.3f\n", l2[0], decoupled[0]);
  const double small = norm(first_step("lamb", {}, {3, 4}, {1e-6, 2e-6})),
               large = norm(first_step("lars", {.lr = 1}, {3, 4}, {1e3, 2e3}));
  std::printf("|w| = 5: LAMB with tiny gradients moves by %.3f = lr |w|, LARS with huge ones by %.4f = lr trust |w|\n",
              small, large);
  const bool adam_is_right = std::abs(with[0] + 0.1) < 1e-5 && std::abs(with[1] + 0.1) < 1e-5 && without[1] < -0.3;
  return adam_is_right && l2[0] > decoupled[0] && std::abs(small - 0.5) < 1e-9 && std::abs(large - 0.005) < 1e-9 ? 0
                                                                                                                 : 1;
}
