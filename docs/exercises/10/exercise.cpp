// The starter: everything is f16, and nothing is scaled. Change it until tests/exercise 10 is content.
#include "docs/exercises/10/exercise.h"

namespace exercise {

void update(std::span<float> weights, std::span<const float> gradients, float rate, int /*growth_interval*/,
            State& /*state*/) {
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = f16(weights[i] - rate * gradients[i]);
}

void train(std::span<const Sample> samples, int steps, float rate, int growth_interval, State& state) {
  const float share = 1.0f / static_cast<float>(samples.size());
  for (int step = 0; step < steps; ++step) {
    float dw = 0;
    for (const Sample& sample : samples) {
      const float y = f16(f16(state.weight) * sample.x);
      const float dy = f16(share * f16(y - sample.target));
      dw += f16(dy * sample.x);
    }
    update({&state.weight, 1}, {&dw, 1}, rate, growth_interval, state);
  }
}

}  // namespace exercise
