// Adapters (models/lora.h) in a folder, as Hugging Face's peft saves and opens them:
//   adapter_model.safetensors   base_model.model.NAME for each parameter NAME of the adapters, as in
//                               base_model.model.transformer.h.0.attn.c_attn.lora_A.weight; with the rank, alpha and
//                               the base's hash as metadata
//   adapter_config.json         for peft
#pragma once

#include <filesystem>
#include <string>

#include "models/layers.h"
#include "models/lora.h"

namespace hs {

class OutputFolder;

// Writes both files into `folder`, which is to be kept. base: a hash of the values of the network that was adapted.
// Throws Error (io).
void write_adapters(const OutputFolder& folder, Module& model, const LoraOptions& options, const std::string& base);

// Adds the folder's adapters to `model`, whose values have the hash `base`. Throws Error: checkpoint (damaged, no
// adapters of halfstep, not of this model, or trained on values of another hash), io, usage (the model takes none); the
// model is of no use then.
LoraOptions load_adapters(StagedModel& model, const std::string& base, const std::filesystem::path& folder);

}  // namespace hs
