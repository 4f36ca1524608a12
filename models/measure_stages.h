// What every stage of a model costs, from one step in which it is done stage by stage.
#pragma once

#include "models/checkpoint_plan.h"

namespace hs {

// Runs the model and its loss forward without history, then backward with one stage's tape at a time; about two forward
// passes more than a step, and of the inputs of n stages no more than about 2 sqrt(n) at once. Under the ambient state
// of the caller, who opens the Autocast scope, and with everything live that is live during a step: that is `fixed`.
// Gradients of parameters are added to: set them to zero afterwards. Reads and resets the device's peak.
// images: (N, H, W, C) f32, normalised; labels: (N) i32
StepCosts measure_stages(const StagedModel& model, const Tensor& images, const Tensor& labels);

}  // namespace hs
