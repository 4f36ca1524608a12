// halfstep-bench export: a trained model in formats of other programs, alone or with adapters.
#include <deque>

#include "bench/commands/commands.h"
#include "bench/measure/experiment.h"
#include "engine/files/npy.h"
#include "models/files/model_file.h"
#include "models/lora.h"

namespace hs::bench::commands {
namespace {

// The model, which computes what it does with its adapters.
LoadedModel load_merged(const std::string& path, const std::string& adapters) {
  LoadedModel loaded = load_model(path);
  if (adapters.empty()) return loaded;
  const LoraOptions options = load_adapters(*loaded.model, measure::sha256(loaded.model->parameters()), adapters);
  const std::vector<NamedTensor> merged = merged_parameters(*loaded.model, options);
  loaded = load_model(path);
  const std::vector<NamedTensor> own = parameters_of(*loaded.model);
  for (size_t i = 0; i < own.size(); ++i) Tensor(own[i].tensor).copy_from(merged.at(i).tensor);
  return loaded;
}

class ExportCommand : public cli::Command {
  std::string model_, adapters_, onnx_, npy_, safetensors_;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"export --model digits.safetensors --onnx digits.onnx",
         "export --model digits.safetensors --npy digits       # then: numpy.load(\"digits/linear.bias.npy\")",
         "export --model base.safetensors --adapters play-adapters --safetensors play.safetensors"},
        "docs/model_files.md says how other programs open the files, docs/techniques/lora.md explains adapters.");
    flags.model_file(model_);
    flags.text("--adapters", own(), adapters_, "DIR", "Adapters of that model, which train --save-adapters wrote");
    flags.text("--onnx", own(), onnx_, "FILE", "Write the model as ONNX, - for stdout");
    flags.text("--npy", own(), npy_, "DIR", "Folder to make, with a NumPy file for each tensor");
    flags.text("--safetensors", own().known_as({"output"}), safetensors_, "FILE",
               "Write the model as train --save-model does, - for stdout");
  }

  void run(const cli::Flags&) override {
    if (model_.empty()) fail(ExitCode::usage, "--model: is missing, expected the FILE that train --save-model wrote");
    if (onnx_.empty() && npy_.empty() && safetensors_.empty())
      fail(ExitCode::usage, "export: nothing to write, expected --onnx FILE, --npy DIR or --safetensors FILE");
    const auto place = [](const std::string& path) {
      std::error_code ignored;
      return std::filesystem::weakly_canonical(std::filesystem::path(path) / "", ignored);
    };
    if (!onnx_.empty() && !npy_.empty() && place(onnx_) == place(npy_))
      fail(ExitCode::usage, "--onnx and --npy: both go to {}", printable_text(npy_));
    const LoadedModel loaded = load_merged(model_, adapters_);
    // All are written before one appears: an export that fails leaves nothing.
    OutputFile file(onnx_, "--onnx"), model(safetensors_, "--safetensors");
    std::optional<OutputFolder> folder;
    std::deque<OutputFile> files;
    if (!npy_.empty()) {
      folder.emplace(npy_);
      for (const auto& [name, tensor] : parameters_of(*loaded.model)) {
        files.emplace_back(folder->path() / (name + ".npy")).write(to_npy(tensor));
      }
      keep_all(files);
    }
    if (!safetensors_.empty()) {
      write_safetensors(model, parameters_of(*loaded.model), describe(loaded.description));
      model.finish();
    }
    if (!onnx_.empty()) {
      file.write(to_onnx(*loaded.model, loaded.description));
      file.keep();
      cli::write_stderr(
          fmt::format("{}: {} as ONNX, {} bytes\n", printable_text(onnx_), loaded.description.model, file.position()));
    }
    model.keep();
    if (folder) {
      folder->keep();
      cli::write_stderr(fmt::format("{}: {} tensors for NumPy\n", printable_text(npy_), files.size()));
    }
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace hs::bench::commands
