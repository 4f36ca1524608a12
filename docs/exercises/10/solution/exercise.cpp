#include "docs/exercises/10/exercise.h"

namespace exercise {

void update(std::span<float> weights, std::span<const float> gradients, float rate, int growth_interval, State& state) {
  if (!std::ranges::all_of(gradients, [](float gradient) { return std::isfinite(gradient); })) {
    ++state.skipped;
    state.finite = 0;
    state.scale = std::max(state.scale / 2, 1.0f);
    return;
  }
  for (size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * (gradients[i] / state.scale);
  if (++state.finite == growth_interval) {
    state.finite = 0;
    state.scale = std::min(state.scale * 2, 16777216.0f);
  }
}

void train(std::span<const Sample> samples, int steps, float rate, int growth_interval, State& state) {
  for (int step = 0; step < steps; ++step) {
    // The only place where the scale enters: backward is linear in dL/dL, so every gradient is multiplied by it.
    const float share = state.scale / static_cast<float>(samples.size());
    const float w = f16(state.weight);
    float dw = 0;
    for (const Sample& sample : samples) {
      const float y = f16(w * sample.x);
      const float dy = f16(share * f16(y - sample.target));
      dw += f16(dy * sample.x);
    }
    update({&state.weight, 1}, {&dw, 1}, rate, growth_interval, state);
  }
}

}  // namespace exercise
