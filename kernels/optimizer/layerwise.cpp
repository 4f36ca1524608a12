// The updates of LARS and LAMB (kernels/optimizer/optimizer.h), whose rate differs from one parameter tensor to the
// next: first its norms, then its numbers. Norms are sums of a fixed number of pieces, added in order, so threads do
// not change them.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/steps.h"

namespace hs {
namespace {

constexpr int64_t most_pieces = 64;

struct Range {
  int64_t begin, end;
};

// Calls body(range of elements, which piece) for pieces of begin .. end-1.
template <class Body>
void for_pieces(int64_t begin, int64_t end, const Body& body) {
  const int64_t grain = std::max<int64_t>(1024, (end - begin + most_pieces - 1) / most_pieces);
  parallel((end - begin + grain - 1) / grain, [&](int64_t piece, int) {
    [[maybe_unused]] const FlushSubnormals flush;
    const int64_t first = begin + piece * grain;
    body(Range{first, std::min(end, first + grain)}, static_cast<size_t>(piece));
  });
}

// Sums of squares of two sequences of a tensor.
class Squares {
 public:
  void put(size_t piece, double first, double second) { first_[piece] = first, second_[piece] = second; }
  float first_norm() const { return norm(first_); }
  float second_norm() const { return norm(second_); }

 private:
  using Pieces = std::array<double, most_pieces>;
  static float norm(const Pieces& pieces) {
    double sum = 0;
    for (const double piece : pieces) sum += piece;
    return static_cast<float>(std::sqrt(sum));
  }
  Pieces first_{}, second_{};
};

void lars_step_cpu(const LarsStep& call) {
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  const float learning_rate = rate[rate_learning], factor = rate[rate_gradient], momentum = call.rule.momentum;
  const float* g = call.gradient.data<float>();
  float* v = call.velocity.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  const int32_t* part = call.parts.data<int32_t>();
  for (int64_t i = 0; i < call.parts.shape()[0]; ++i, part += 3) {
    const float decay = part[2] ? call.rule.weight_decay : 0;
    float ratio = 1;
    if (part[2]) {
      Squares squares;
      for_pieces(part[0], part[1], [&](Range range, size_t piece) {
        double weights = 0, gradients = 0;
        for (int64_t j = range.begin; j < range.end; ++j) {
          const double gradient_j = g[j] * factor;
          weights += double{w[j]} * w[j];
          gradients += gradient_j * gradient_j;
        }
        squares.put(piece, weights, gradients);
      });
      const float weight = squares.first_norm(), gradient = squares.second_norm();
      if (weight > 0 && gradient > 0) ratio = call.rule.trust * weight / (gradient + decay * weight);
    }
    for_pieces(part[0], part[1], [=](Range range, size_t) {
      for (int64_t j = range.begin; j < range.end; ++j) {
        v[j] = momentum * v[j] + learning_rate * ratio * (g[j] * factor + decay * w[j]);
        w[j] -= v[j];
      }
    });
  }
}

void lamb_step_cpu(const LambStep& call) {
  const float* rate = call.rates.data<float>();
  if (rate[rate_skip] != 0) return;
  const float learning_rate = rate[rate_learning], factor = rate[rate_gradient];
  const float correction1 = rate[rate_correction1], correction2 = rate[rate_correction2];
  const float* g = call.gradient.data<float>();
  float* m = call.mean.mutable_data<float>();
  float* v = call.square.mutable_data<float>();
  float* w = call.value.mutable_data<float>();
  const int32_t* part = call.parts.data<int32_t>();
  for (int64_t i = 0; i < call.parts.shape()[0]; ++i, part += 3) {
    const float decay = part[2] ? call.rule.weight_decay : 0;
    const auto direction = [=, epsilon = call.rule.epsilon](int64_t j) {
      return m[j] * correction1 / (std::sqrt(v[j] * correction2) + epsilon) + decay * w[j];
    };
    Squares squares;
    for_pieces(part[0], part[1], [&, rule = call.rule](Range range, size_t piece) {
      double weights = 0, directions = 0;
      for (int64_t j = range.begin; j < range.end; ++j) {
        const float gradient_j = g[j] * factor;
        m[j] = rule.beta1 * m[j] + (1 - rule.beta1) * gradient_j;
        v[j] = rule.beta2 * v[j] + (1 - rule.beta2) * gradient_j * gradient_j;
        const double u = direction(j);
        weights += double{w[j]} * w[j];
        directions += u * u;
      }
      squares.put(piece, weights, directions);
    });
    const float weight = squares.first_norm(), length = squares.second_norm();
    const float ratio = part[2] && weight > 0 && length > 0 ? weight / length : 1;
    for_pieces(part[0], part[1], [=](Range range, size_t) {
      for (int64_t j = range.begin; j < range.end; ++j) w[j] -= learning_rate * ratio * direction(j);
    });
  }
}

REGISTER_KERNEL(lars_step, cpu, "simple", {.run = lars_step_cpu});
REGISTER_KERNEL(lamb_step, cpu, "simple", {.run = lamb_step_cpu});

}  // namespace
}  // namespace hs
