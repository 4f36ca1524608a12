// Trained models in files: a safetensors file with a tensor for each parameter, under the parameter's name and in the
// engine's layout, and metadata that say which model it is and what its input looks like. docs/model_files.md describes
// it, and shows how PyTorch opens one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "models/description.h"

namespace hs {

// What load_model() returns.
struct LoadedModel {
  ModelDescription description;        // from the file's metadata
  std::unique_ptr<StagedModel> model;  // on the CPU
};

// Throws Error: io, usage (a member of the description cannot be loaded again: see load_model()).
void save_model(const std::filesystem::path& path, Module& model, const ModelDescription& description);
// Throws Error: checkpoint (the file is damaged, or is no model's, or its tensors do not fit the model: the message
// names those that are missing, too many, or of another shape or type), io, bad_input (no regular file).
LoadedModel load_model(const std::filesystem::path& path);

// The parts of it, for modules of your own. load_parameters() changes nothing unless all tensors fit.
std::vector<NamedTensor> parameters_of(Module& module);
void load_parameters(Module& module, const SafetensorsFile& file);  // throws as load_model()
// To a file and back, with the parameters' names alone. Throw as save_model() and load_model().
void save(Module& module, const std::filesystem::path& path);
void load(Module& module, const std::filesystem::path& path);  // see save()
// Loads the body alone (ParameterRole::head), and of it the tensors that have the name and the shape of a parameter.
// Returns the parameters that keep their values, first those of the head. Throws as load_model().
std::vector<NamedParameter> load_body(Module& module, const SafetensorsFile& file);
Metadata describe(const ModelDescription& description);  // the metadata of save_model()

// An ONNX file's bytes: the model as a graph that other runtimes execute (onnx.ai, docs/model_files.md). Input
// "images": f32 (N, rows, columns, channels), normalised as for the model itself; output "logits": f32 (N, classes); N
// is free. Of a model of a text: input "tokens": i64 (N, context), output "logits": f32 (N, context, classes). Dropout
// is left out. The description is in the file's metadata. Throws Error (usage) that names a kernel or a shape that has
// no counterpart in models/files/onnx.cpp.
std::string to_onnx(Module& model, const ModelDescription& description);

}  // namespace hs
