// The parts of Muon's step that are no matrix products (kernels/optimizer/optimizer.h).
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

namespace hs {
namespace {

void muon_direction_cpu(const MuonDirection& call) {
  constexpr int64_t pieces = 64;  // fixed, so that the order of additions is
  const int64_t size = call.gradient.size(), grain = (size + pieces - 1) / pieces;
  const float* g = call.gradient.data<float>();
  const float *rate = call.rates.data<float>(), factor = rate[rate_gradient], momentum = call.momentum;
  float *v = call.velocity.mutable_data<float>(), *u = call.direction.mutable_data<float>();
  if (rate[rate_skip] != 0) return std::fill(u, u + size, 0.0f);
  std::array<double, pieces> squares{};
  parallel(pieces, [&, g, v, u](int64_t piece, int) {
    const FlushSubnormals flush;
    double sum = 0;
    for (int64_t i = piece * grain; i < std::min(size, (piece + 1) * grain); ++i) {
      const float gradient_i = g[i] * factor;
      v[i] += (1 - momentum) * (gradient_i - v[i]);
      u[i] = gradient_i + momentum * (v[i] - gradient_i);
      sum += double{u[i]} * u[i];
    }
    squares[static_cast<size_t>(piece)] = sum;
  });
  double sum = 0;
  for (const double piece : squares) sum += piece;
  const float scale = 1 / std::max(static_cast<float>(std::sqrt(sum)), muon_smallest);
  parallel_ranges(size, elementwise_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) u[i] *= scale;
  });
}

void muon_factor_cpu(const MuonFactor& call) {
  const float* gram = call.gram.data<float>();
  float* square = call.square.mutable_data<float>();
  const int64_t M = call.gram.shape()[0];
  parallel_ranges(M * M, elementwise_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      square[i] = muon_b * gram[i] + muon_c * square[i] + (i % (M + 1) == 0 ? muon_a : 0);
    }
  });
}

void muon_update_cpu(const MuonUpdate& call) {
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  const float shrink = 1 - rate[rate_learning] * call.weight_decay, step = rate[rate_learning] * call.rate;
  const float* u = call.direction.data<float>();
  float* w = call.value.mutable_data<float>();
  parallel_ranges(call.value.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) w[i] = w[i] * shrink - step * u[i];
  });
}

REGISTER_KERNEL(muon_direction, cpu, "simple", {.run = muon_direction_cpu});
REGISTER_KERNEL(muon_factor, cpu, "simple", {.run = muon_factor_cpu});
REGISTER_KERNEL(muon_update, cpu, "simple", {.run = muon_update_cpu});

}  // namespace
}  // namespace hs
