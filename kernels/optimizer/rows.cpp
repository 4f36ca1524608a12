// Rows of the optimizers' steps. Each returns the updated tensors, concatenated; the third input of Adam is squared, to
// be a valid state.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/register.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

namespace hs::examples::optimizer_rows {

// skip: not 0 if the step is not taken: rows make such a step, too, which changes nothing.
Tensor rates(float learning_rate, float skip = 0) {
  return on_test_device(Tensor::from(std::vector<float>{learning_rate, 2, 3, 0.5f, skip, learning_rate}, {step_rates}));
}

// Zeros, if `narrow` is what cast() makes of the value.
Tensor distance(const Tensor& narrow, const Tensor& value) {
  return add(cast(narrow, DType::f32), scale(cast(cast(value, narrow.dtype()), DType::f32), -1));
}

Numbers joined(const std::vector<Numbers>& parts) {
  Numbers all;
  for (const Numbers& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// A row of a kernel that is f32 alone, and whose result is no function to differentiate.
void add_step(Table& table, OpCase row, const Tolerance& forward = tolerance::optimizer) {
  row.forward = forward;
  row.f64 = row.half = row.differentiable = row.integers = false;
  table.push_back(std::move(row));
}

double norm(const Numbers& x, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

// The first 64 of `size` numbers are a tensor that is not adapted, the others are one that is.
Tensor two_parts(int64_t size) {
  const auto end = static_cast<int32_t>(size), first = std::min(end, 64);
  return on_test_device(Tensor::from(std::vector<int32_t>{0, first, 0, first, end, 1}, {2, 3}));
}

void add_layerwise_steps(Table& table, int64_t size) {
  add_step(table, {.name = fmt::format("lars_step ({})", size),
                   .shapes = {{size}, {size}, {size}},
                   .run = {[=](const Inputs& in) {
                     Tensor velocity = in[1].clone(), value = in[2].clone();
                     lars_step({in[0], {0.9f, 0.1f, 0.25f}, rates(0.5f), two_parts(size), velocity, value});
                     return join({velocity, value});
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers g = in[0], v = in[1], w = in[2];
                     for (double& each : g) each *= 0.5;
                     const double weight = norm(w, 64, w.size()), decay = double{0.1f};
                     const double ratio = 0.25 * weight / (norm(g, 64, g.size()) + decay * weight);
                     for (size_t i = 0; i < v.size(); ++i) {
                       const double step = i < 64 ? 0.5 * g[i] : 0.5 * ratio * (g[i] + decay * w[i]);
                       v[i] = double{0.9f} * v[i] + step;
                       w[i] -= v[i];
                     }
                     return joined({v, w});
                   }}});
  add_step(table, {.name = fmt::format("lamb_step ({})", size),
                   .shapes = {{size}, {size}, {size}, {size}},
                   .run = {[=](const Inputs& in) {
                     Tensor mean = in[1].clone(), square = mul(in[2], in[2]), value = in[3].clone();
                     const LambRule rule{0.9f, 0.999f, 1e-3f, 0.1f};
                     lamb_step({in[0], rule, rates(0.01f), two_parts(size), mean, square, value});
                     return join({mean, square, value});
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers m = in[1], v = in[2], w = in[3], u(m.size());
                     const double b1 = double{0.9f}, b2 = double{0.999f};
                     for (size_t i = 0; i < m.size(); ++i) {
                       const double g = 0.5 * in[0][i];
                       m[i] = b1 * m[i] + (1 - b1) * g;
                       v[i] = b2 * v[i] * v[i] + (1 - b2) * g * g;
                       u[i] = m[i] * 2 / (std::sqrt(v[i] * 3) + double{1e-3f}) + (i < 64 ? 0 : double{0.1f} * w[i]);
                     }
                     const double ratio = norm(w, 64, w.size()) / norm(u, 64, u.size());
                     for (size_t i = 0; i < w.size(); ++i) w[i] -= double{0.01f} * (i < 64 ? 1 : ratio) * u[i];
                     return joined({m, v, w});
                   }}});
}

void add_muon_steps(Table& table, int64_t size) {
  add_step(table, {.name = fmt::format("muon_direction ({})", size),
                   .shapes = {{size}, {size}},
                   .run = {[](const Inputs& in) {
                     Tensor velocity = in[1].clone(), direction = in[0].empty_like();
                     muon_direction({in[0], 0.9f, rates(0.1f), velocity, direction});
                     return join({velocity, direction});
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers v = in[1], u = in[0];
                     const double momentum = double{0.9f};
                     for (size_t i = 0; i < v.size(); ++i) {
                       v[i] += (1 - momentum) * (0.5 * u[i] - v[i]);
                       u[i] = (1 - momentum) * 0.5 * u[i] + momentum * v[i];
                     }
                     const double length = norm(u, 0, u.size());
                     for (double& each : u) each /= length;
                     return joined({v, u});
                   }}});
  const auto M = static_cast<int64_t>(std::sqrt(static_cast<double>(size)));
  add_step(table,
           {.name = fmt::format("muon_factor ({}, {})", M, M),
            .shapes = {{M, M}, {M, M}},
            .run = {[](const Inputs& in) {
              Tensor square = in[1].clone();
              muon_factor({in[0], square});
              return square;
            }},
            .reference = {[M](const std::vector<Numbers>& in) {
              Numbers y = in[1];
              for (size_t i = 0; i < y.size(); ++i) y[i] = double{muon_b} * in[0][i] + double{muon_c} * y[i];
              for (size_t i = 0; i < y.size(); i += static_cast<size_t>(M) + 1) y[i] += double{muon_a};
              return y;
            }},
            .same_on_devices = true},
           {0, 24 * tolerance::u32});  // roundings of up to 4.8, 2, 6.8 and 10.3
  add_step(table, {.name = fmt::format("muon_update ({})", size),
                   .shapes = {{size}, {size}},
                   .run = {[](const Inputs& in) {
                     Tensor value = in[1].clone();
                     muon_update({in[0], 2, 0.25f, rates(0.1f), value});
                     return value;
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers w = in[1];
                     const double lr = double{0.1f};
                     for (size_t i = 0; i < w.size(); ++i) w[i] = w[i] * (1 - lr * 0.25) - lr * 2 * in[0][i];
                     return w;
                   }},
                   .same_on_devices = true});
}

void add_steps(Table& table, int64_t size) {
  add_step(table, {.name = fmt::format("measure_gradients ({})", size),
                   .shapes = {{size}},
                   .run = {[](const Inputs& in) {
                     const Tensor scaler = on_test_device(Tensor::from(std::vector<float>{8, 0, 0}, {3}));
                     Tensor measured = Tensor::empty({2}, DType::f32, in[0].device());
                     measure_gradients({in[0], scaler, measured});
                     return measured;
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     double squares = 0;
                     for (const double g : in[0]) squares += g * g / 64;
                     return Numbers{squares, 0};
                   }}});
  // The first step, clipped to a norm of 0.01: what was measured, then the rates.
  add_step(table, {.name = fmt::format("begin_step, measuring ({})", size),
                   .shapes = {{size}},
                   .run = {[=](const Inputs& in) {
                     Tensor scaler = on_test_device(Tensor::from(std::vector<float>{8, 0, 0}, {3}));
                     Tensor step = on_test_device(Tensor::zeros({}, DType::i32)), state = rates(0.5f);
                     Tensor measured = Tensor::empty({2}, DType::f32, in[0].device());
                     const StepRule rule{0.9f, 0.5f, 0.01f, {}, {.enabled = true}};
                     begin_step({rule, measured, scaler, step, state, in[0]});
                     return join({measured, state});
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     double squares = 0;
                     for (const double g : in[0]) squares += g * g / 64;
                     const double clip = std::min(1.0, double{0.01f} / std::sqrt(squares));
                     return Numbers{squares, 0, 0.5, 1 / (1 - double{0.9f}), 2, clip / 8, 0, 0.5};
                   }}});
  // Every second granule decays.
  const auto decays = [=] {
    std::vector<float> decay;
    for (int64_t i = 0; i < size; i += ParameterArena::granule) decay.push_back(decay.size() % 2 ? 0.25f : 0);
    return on_test_device(Tensor::from(decay, {static_cast<int64_t>(decay.size())}));
  };
  for (const bool nesterov : {false, true}) {
    add_step(table, {.name = fmt::format("sgd_step {}({})", nesterov ? "nesterov, decay by granule " : "", size),
                     .shapes = {{size}, {size}, {size}},
                     .run = {[=](const Inputs& in) {
                       Tensor velocity = in[1].clone(), value = in[2].clone();
                       Tensor narrow = Tensor::empty(value.shape(), DType::bf16, value.device());
                       const SgdRule rule{0.9f, nesterov ? 7 : 0.01f, nesterov};
                       const Tensor decay = nesterov ? decays() : Tensor();
                       for (const float skip : {0.0f, 1.0f})
                         sgd_step({in[0], rule, rates(0.1f, skip), velocity, value, narrow, decay});
                       return join({velocity, value, distance(narrow, value)});
                     }},
                     .reference = {[=](const std::vector<Numbers>& in) {
                       Numbers v = in[1], w = in[2];
                       for (size_t i = 0; i < v.size(); ++i) {
                         const double decay = !nesterov ? double{0.01f} : i / ParameterArena::granule % 2 ? 0.25 : 0;
                         const double g = 0.5 * in[0][i] + decay * w[i];
                         v[i] = double{0.9f} * v[i] + g;
                         w[i] -= double{0.1f} * (nesterov ? g + double{0.9f} * v[i] : v[i]);
                       }
                       return joined({v, w, Numbers(w.size())});
                     }},
                     .same_on_devices = true});
  }
  add_layerwise_steps(table, size);
  add_step(table, {.name = fmt::format("average_step ({})", size),
                   .shapes = {{size}, {size}},
                   .run = {[=](const Inputs& in) {
                     Tensor average = in[1].clone();
                     const Tensor step = on_test_device(Tensor::from(std::vector<int32_t>{3}, {}));
                     for (const float skip : {0.0f, 1.0f})
                       average_step({in[0], rates(0.1f, skip), step, 0.99f, average});
                     return average;
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers average = in[1];
                     for (size_t i = 0; i < average.size(); ++i) {
                       average[i] += (1 - 4.0 / 13) * (in[0][i] - average[i]);
                     }
                     return average;
                   }},
                   .same_on_devices = true});
  add_step(table, {.name = fmt::format("fold_statistics ({})", size),
                   .shapes = {{size}, {size}},
                   .run = {[=](const Inputs& in) {
                     Tensor value = in[1].clone();
                     for (const float skip : {0.0f, 1.0f}) fold_statistics({in[0], rates(0.1f, skip), 0.25f, 3, value});
                     return value;
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers value = in[1];
                     for (size_t i = 0; i < value.size(); ++i) value[i] += 0.25 * (in[0][i] / 3 - value[i]);
                     return value;
                   }},
                   .same_on_devices = true});
  add_muon_steps(table, size);
  add_step(table, {.name = fmt::format("schedule_free_step ({})", size),
                   .shapes = {{size}, {size}, {size}, {size}},
                   .run = {[](const Inputs& in) {
                     Tensor fast = in[1].clone(), square = mul(in[2], in[2]), value = in[3].clone();
                     const Tensor step = on_test_device(Tensor::from(std::vector<int32_t>{5}, {}));
                     const AdamRule rule{0.9f, 0.999f, 1e-3f, 0.1f, true};
                     schedule_free_step({in[0], rule, 3, step, rates(0.01f), fast, square, value});
                     return join({fast, square, value});
                   }},
                   .reference = {[](const std::vector<Numbers>& in) {
                     Numbers z = in[1], v = in[2], w = in[3];
                     const double b1 = double{0.9f}, b2 = double{0.999f};
                     const double share = 1 / ((1 + 4 + 9) / 16.0 + 2);  // warm-up by quarters, then twice 1
                     for (size_t i = 0; i < z.size(); ++i) {
                       const double g = 0.5 * in[0][i];
                       double x = (w[i] - (1 - b1) * z[i]) / b1;
                       v[i] = b2 * v[i] * v[i] + (1 - b2) * g * g;
                       z[i] -= double{0.01f} * (g / (std::sqrt(v[i] * 3) + double{1e-3f}) + double{0.1f} * w[i]);
                       x += share * (z[i] - x);
                       w[i] = (1 - b1) * z[i] + b1 * x;
                     }
                     return joined({z, v, w});
                   }},
                   .same_on_devices = true});
  for (const bool decoupled : {false, true}) {
    add_step(table, {.name = fmt::format("adam_step {}({})", decoupled ? "decoupled " : "", size),
                     .shapes = {{size}, {size}, {size}, {size}},
                     .run = {[=](const Inputs& in) {
                       Tensor mean = in[1].clone(), square = mul(in[2], in[2]), value = in[3].clone();
                       Tensor narrow = Tensor::empty(value.shape(), DType::f16, value.device());
                       const AdamRule rule{0.9f, 0.999f, 1e-8f, 0.1f, decoupled};
                       for (const float skip : {0.0f, 1.0f})
                         adam_step({in[0], rule, rates(0.01f, skip), mean, square, value, narrow});
                       return join({mean, square, value, distance(narrow, value)});
                     }},
                     .reference = {[=](const std::vector<Numbers>& in) {
                       Numbers m = in[1], v = in[2], w = in[3];
                       const double b1 = double{0.9f}, b2 = double{0.999f};
                       for (size_t i = 0; i < m.size(); ++i) {
                         const double g = 0.5 * in[0][i] + (decoupled ? 0 : double{0.1f} * w[i]);
                         m[i] = b1 * m[i] + (1 - b1) * g;
                         v[i] = b2 * v[i] * v[i] + (1 - b2) * g * g;
                         if (decoupled) w[i] *= 1 - double{0.01f} * double{0.1f};
                         w[i] -= double{0.01f} * m[i] * 2 / (std::sqrt(v[i] * 3) + double{1e-8f});
                       }
                       return joined({m, v, w, Numbers(w.size())});
                     }},
                     .same_on_devices = true});
  }
}

const Examples rows([](Table& table) {
  // Three steps, the second one skipped, clipped to a norm of 2: the rates, then the counter and the scaler's state.
  add_step(table,
           {.name = "begin_step",
            .run = {[=](const Inputs&) {
              Tensor step = on_test_device(Tensor::zeros({}, DType::i32)), state = rates(0.5f);
              Tensor scaler = on_test_device(Tensor::from(std::vector<float>{1024, 0, 0}, {3}));
              const StepRule rule{0.9f, 0.999f, 2, {ScheduleKind::linear, 0, 10}, {.enabled = true}};
              for (const float bad : {0.0f, 3.0f, 0.0f}) {
                Tensor measured = on_test_device(Tensor::from(std::vector<float>{16, bad}, {2}));
                begin_step({rule, measured, scaler, step, state});
              }
              return join({state, step, scaler});
            }},
            .reference = {[](const std::vector<Numbers>&) {
              const double b1 = double{0.9f}, b2 = double{0.999f};
              return Numbers{0.45, 1 / (1 - b1 * b1), 1 / (1 - b2 * b2), 0.5 / 512, 0, 0.5, 2, 512, 1, 1};
            }}},
           tolerance::two_roundings);
  table.push_back({.name = "scale_loss",
                   .shapes = {{1}},
                   .run = {[](const Inputs& in) {
                     Tensor share = in[0].empty_like();
                     scale_loss({in[0], 0.25f, share});
                     return share;
                   }},
                   .reference = elementwise([](double x) { return 0.25 * x; }),
                   .f64 = false,
                   .half = false,
                   .differentiable = false});
  for (const int64_t size : {1, 7, 40001}) add_steps(table, size);
});

template <size_t k>
OpCase drawn_step(Draw& draw) {
  Table table;
  add_steps(table, draw.positive(40001));
  return table.at(k);
}
const Examples drawn[] = {Examples(drawn_step<0>),  Examples(drawn_step<1>),  Examples(drawn_step<2>),
                          Examples(drawn_step<3>),  Examples(drawn_step<4>),  Examples(drawn_step<5>),
                          Examples(drawn_step<6>),  Examples(drawn_step<7>),  Examples(drawn_step<8>),
                          Examples(drawn_step<9>),  Examples(drawn_step<10>), Examples(drawn_step<11>),
                          Examples(drawn_step<12>), Examples(drawn_step<13>)};

}  // namespace hs::examples::optimizer_rows
