#include "docs/exercises/10/exercise.h"

namespace exercise {

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
    if (!std::isfinite(dw)) {
      ++state.skipped;
      state.finite = 0;
      state.scale = std::max(state.scale / 2, 1.0f);
      continue;
    }
    state.weight -= rate * (dw / state.scale);
    if (++state.finite == growth_interval) {
      state.finite = 0;
      state.scale = std::min(state.scale * 2, 16777216.0f);
    }
  }
}

}  // namespace exercise
