// Trained models in files: a safetensors file with a tensor for each parameter, under the parameter's name and in the
// engine's layout, and metadata that say which model it is and what its input looks like. docs/model_files.md describes
// it, and shows how PyTorch opens one.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/files/safetensors.h"
#include "models/models.h"

namespace hs {

// What a file says about its model.
struct ModelDescription {
  std::string model;                          // as for make_model()
  ModelSizes sizes;                           // as for make_model()
  PixelScale scale;                           // how pixels become the model's input: see normalize_image()
  std::string data;                           // the name of the data set that it was trained on; for people
  std::string vocabulary = {};                // of a model of a text, the byte of each symbol
  std::vector<std::string> class_names = {};  // see SampleInfo; empty: the numbers are the names
  // Where to find the test samples again.
  struct Origin {
    std::string source;         // the name of a set, or a path
    std::string size;           // "32x48" that its images were resized to; empty: as they are
    double test_split;          // the fraction that was held out for the test; 0: the set has a test part
    int64_t test;               // test samples
    std::string contents = {};  // what tells the set from one that has changed; empty: not known
  };
  std::optional<Origin> origin = {};  // empty: not known

  // What to call a class.
  std::string class_name(size_t label) const {
    return class_names.empty() ? std::to_string(label) : class_names[label];
  }
};

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
Metadata describe(const ModelDescription& description);             // the metadata of save_model()

// An ONNX file's bytes: the model as a graph that other runtimes execute (onnx.ai, docs/model_files.md). Input
// "images": f32 (N, rows, columns, channels), normalised as for the model itself; output "logits": f32 (N, classes); N
// is free. Of a model of a text: input "tokens": i64 (N, context), output "logits": f32 (N, context, classes). Dropout
// is left out. The description is in the file's metadata. Throws Error (usage) that names a kernel or a shape that has
// no counterpart in models/onnx.cpp.
std::string to_onnx(Module& model, const ModelDescription& description);

}  // namespace hs
