// The updates of LARS and LAMB (kernels/optimizer/layerwise.h). Norms are sums of a fixed number of pieces, added in
// order, so threads do not change them.
#include "kernels/optimizer/layerwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/optimizer/optimizer.h"

namespace hs {
namespace {

using Pieces = std::array<double, 64>;  // sums of squares

// Calls body(first, last, which piece) for pieces of begin .. end-1.
template <class Body>
void for_pieces(int64_t begin, int64_t end, const Body& body) {
  constexpr int64_t most = std::tuple_size_v<Pieces>;
  const int64_t grain = std::max<int64_t>(1024, (end - begin + most - 1) / most);
  parallel((end - begin + grain - 1) / grain, [&](int64_t piece, int) {
    const FlushSubnormals flush;
    const int64_t first = begin + piece * grain;
    body(first, std::min(end, first + grain), static_cast<size_t>(piece));
  });
}

float norm(const Pieces& pieces) {
  double sum = 0;
  for (const double piece : pieces) sum += piece;
  return static_cast<float>(std::sqrt(sum));
}

template <class Call, class Update, class... State>
void update_parts(const Call& call, Update update, State*... state) {
  const float *g = call.gradient.template data<float>(), *rates = call.rates.template data<float>();
  if (rates[rate_skip] != 0) return;
  update.begin(rates);
  float* w = call.value.template mutable_data<float>();
  const int32_t* part = call.parts.template data<int32_t>();
  for (int64_t i = 0; i < call.parts.shape()[0]; ++i, part += 3) {
    const float decay = part[2] ? call.rule.weight_decay : 0;
    Pieces weights{}, others{};
    for_pieces(part[0], part[1], [=, &weights, &others](int64_t first, int64_t last, size_t piece) {
      double weight = 0, other = 0;
      for (int64_t j = first; j < last; ++j) {
        const double measured = update.measure(decay, g[j], w[j], state[j]...);
        weight += double{w[j]} * w[j];
        other += measured * measured;
      }
      weights[piece] = weight, others[piece] = other;
    });
    const float ratio = rate_of_part(update, part[2] != 0, decay, norm(weights), norm(others));
    for_pieces(part[0], part[1], [=](int64_t first, int64_t last, size_t) {
      for (int64_t j = first; j < last; ++j) update(decay, ratio, g[j], w[j], state[j]...);
    });
  }
}

void lars_step_cpu(const LarsStep& call) {
  update_parts(call, LarsUpdate{call.rule}, call.velocity.mutable_data<float>());
}

void lamb_step_cpu(const LambStep& call) {
  update_parts(call, LambUpdate{call.rule}, call.mean.mutable_data<float>(), call.square.mutable_data<float>());
}

REGISTER_KERNEL(lars_step, cpu, "simple", {.run = lars_step_cpu});
REGISTER_KERNEL(lamb_step, cpu, "simple", {.run = lamb_step_cpu});

}  // namespace
}  // namespace hs
