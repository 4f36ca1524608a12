// What the judge runs of exercise 1: the values, the gradient, and what is kept for backward.
#pragma once

namespace hs::examples::softplus_rows {

inline const std::vector<float> points = {-1000, -90, -17, -3, -0.5f, 0, 0.25f, 2, 15, 80, 90, 1000};

inline Tensor leaf() {
  Tensor x = Tensor::from(points, {static_cast<int64_t>(points.size())});
  x.set_requires_grad(true);
  return x;
}

inline Tensor with_history(const Tensor& x) {
  Tensor y = softplus(x);
  if (!y.requires_grad()) throw Error(ExitCode::usage, "the result has no history: return record(...)");
  return y;
}

inline Tensor gradient(const Inputs&) {
  const Tensor x = leaf();
  backward(sum(scale(with_history(x), 3)));
  return x.grad();
}

// Whether x can be freed: of two tensors of a size, one is left.
inline Tensor kept(const Inputs&) {
  const auto activations = [] {
    return memory_stats(Device::cpu).live_by_purpose[static_cast<size_t>(MemoryPurpose::activations)];
  };
  const Tensor x = leaf();
  const size_t before = activations();
  Tensor between = scale(x, 2);
  const size_t one = activations() - before;
  const Op op("softplus");  // so that what is allocated here counts as an activation
  const Tensor y = with_history(between);
  between = Tensor();
  if (activations() - before != one) throw Error(ExitCode::usage, "x stays alive: keep only y for backward");
  return y;
}

// Whether a modification of y is noticed: what is written is what was there.
inline Tensor modified(const Inputs&) {
  Tensor y = with_history(leaf());
  y.mutable_data<float>()[0] = 0;
  try {
    backward(sum(y));
  } catch (const Error&) {
    return y;
  }
  throw Error(ExitCode::usage, "y was modified before backward, which did not notice: keep y.saved()");
}

// At the points, times `factor`.
template <class F>
auto at_points(F f, double factor = 1) {
  return [f, factor](const std::vector<Numbers>&) {
    Numbers values;
    for (const float x : points) values.push_back(f(factor * x));
    return values;
  };
}

inline double value(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

inline const Examples rows([](Table& table) {
  const OpCase row{.name = "softplus, values",
                   .run = [](const Inputs&) { return softplus(leaf()); },
                   .forward = {1e-6, 1e-36, 0},
                   .reference = at_points(value),
                   .f64 = false,
                   .half = false,
                   .cuda = false,
                   .differentiable = false,
                   .integers = false,
                   .nan = false};
  table.insert(table.end(), 4, row);
  table[table.size() - 3].name = "softplus, 3 times the gradient";
  table[table.size() - 3].run = gradient;
  table[table.size() - 3].reference = at_points([](double x) { return 3 / (1 + std::exp(-x)); });
  table[table.size() - 2].name = "softplus, what backward keeps";
  table[table.size() - 2].run = kept;
  table[table.size() - 2].reference = at_points(value, 2);
  table.back().name = "softplus, y modified before backward";
  table.back().run = modified;
});

}  // namespace hs::examples::softplus_rows
