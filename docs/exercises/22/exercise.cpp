// The starter: right if every step is launched, and wrong when it is replayed. Change it until tests/exercise 22 is
// content.
#include "docs/exercises/22/exercise.h"

#include <cmath>

namespace exercise {

void launch_step(Stream& stream, const Memory& memory) {
  const int64_t step = ++*memory.step;
  const float factor = *memory.rate / (1 - std::pow(0.9f, static_cast<float>(step)));
  stream.launch([memory] {
    for (int64_t i = 0; i < memory.size; ++i) memory.average[i] = 0.9f * memory.average[i] + 0.1f * memory.gradients[i];
  });
  stream.launch([memory, factor] {
    for (int64_t i = 0; i < memory.size; ++i) memory.weights[i] -= factor * memory.average[i];
  });
}

void Replayed::run(Stream& stream, const std::function<void()>& launch) {
  if (!has_run_) {
    stream.begin_recording();
    launch();
    record_ = stream.end_recording();
    has_run_ = true;
  }
  for (const Kernel& kernel : record_) kernel();
}

}  // namespace exercise
