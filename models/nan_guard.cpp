#include "models/nan_guard.h"

#include <algorithm>
#include <cmath>

#include "engine/ambient.h"
#include "engine/check.h"
#include "kernels/cast/cast.h"
#include "models/staged_model.h"

namespace hs {
namespace {

bool is_finite(const Tensor& tensor) {
  return std::ranges::all_of(tensor.to_vector<float>(), [](float value) { return std::isfinite(value); });
}

// The first stage of the model whose output is not finite; empty if there is none, or if the model has no stages.
std::string first_stage_not_finite(Module& model, Tensor images) {
  const auto* staged = dynamic_cast<const StagedModel*>(&model);
  if (!staged) return "";
  const NoGrad scope;
  for (const Stage& stage : staged->stages()) {
    images = stage.forward(images);
    if (!is_finite(images.dtype() == DType::f32 ? images : cast(images, DType::f32))) return stage.name;
  }
  return "";
}

}  // namespace

std::string with_layer(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : fmt::format("{}, of layer {}", parameter, parameter.substr(0, dot));
}

std::string first_not_finite(const ParameterArena& arena, Module& model, const Tensor& images) {
  for (const NamedParameter& parameter : model.parameters()) {  // in its order: statistics after what they depend on
    if (!is_finite(parameter.value->detach())) return with_layer(parameter.name);
  }
  const std::string stage = images.defined() ? first_stage_not_finite(model, images) : "";
  if (!stage.empty()) return "the output of layer " + stage;
  for (const NamedParameter& parameter : arena.parameters()) {
    const Tensor gradient = parameter.value->grad();
    if (gradient.defined() && !is_finite(gradient)) return "the gradient of " + with_layer(parameter.name);
  }
  return "the loss";
}

std::string first_not_finite(const TrainingState& state, const ParameterArena& arena) {
  for (const NamedParameter& parameter : arena.parameters()) {
    if (!is_finite(state.tensors.at(parameter.name))) return parameter.name;
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (tensor.dtype() == DType::f32 && !is_finite(tensor)) return name;
  }
  return "";
}

}  // namespace hs
