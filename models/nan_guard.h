// The NaN guard: names the tensor with which a run's numbers ceased to be numbers, once train() has found that they
// did.
#pragma once

#include <string>

#include "engine/module.h"
#include "models/training_state.h"

namespace hs {

// "conv1.weight, of layer conv1"
std::string with_layer(const std::string& parameter);

// A parameter if one is not finite, because a single one spoils everything else; then the output of the model's first
// stage that computes one from these images, if they are given; then a gradient; otherwise "the loss". The losses are
// read later than they are computed, so more may have gone wrong since. Uses the caller's ambient state.
std::string first_not_finite(const ParameterArena& arena, Module& model, const Tensor& images);

// A tensor of a state, the weights first; empty if all are finite.
std::string first_not_finite(const TrainingState& state, const ParameterArena& arena);

}  // namespace hs
