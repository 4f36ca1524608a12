// Measures what every stage of a model costs, in one step run stage by stage.
#pragma once

#include "models/checkpoint_plan.h"

namespace hs {

// What StepCosts::fixed has besides what is live: a step's scalars, such as the micro-batches' losses and the gradient
// norm, in bytes.
inline constexpr int64_t step_scalars = 1024;

// Runs the model and its loss forward without history, then backward with one stage's tape at a time. Costs about two
// forward passes more than a step, and keeps at most about 2 sqrt(n) of the n stages' inputs at once. Uses the caller's
// ambient state: open the Autocast scope first. Everything that is live during a step must be live now; it is measured
// as `fixed`. Adds to the parameters' gradients: set them to zero afterwards. Reads and resets the device's peak.
// images: (N, H, W, C), as prepare() returns them; labels: (N) i32
StepCosts measure_stages(const StagedModel& model, const Tensor& images, const Tensor& labels);

}  // namespace hs
