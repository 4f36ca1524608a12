// The starter: the ordinary tape, which keeps every activation. Change it until tests/exercise 09 is content.
#include "docs/exercises/09/exercise.h"

#include <vector>

namespace exercise {

Values gradient(std::span<const Stage> stages, const Activation& x, int64_t /*length*/, int64_t first_key,
                const std::function<Values(const Activation& y)>& loss_gradient) {
  std::vector<Activation> inputs = {x};
  int64_t key = first_key;
  for (const Stage& stage : stages) inputs.push_back(stage.forward(inputs.back(), key++));
  Values dy = loss_gradient(inputs.back());
  for (size_t i = stages.size(); i-- > 0;) dy = stages[i].backward(inputs[i], dy, --key);
  return dy;
}

}  // namespace exercise
