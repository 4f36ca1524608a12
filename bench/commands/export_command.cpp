// halfstep-bench export: a trained model in formats of other programs.
#include <fmt/format.h>

#include <deque>
#include <filesystem>
#include <optional>

#include "bench/cli/console.h"
#include "bench/commands/commands.h"
#include "engine/check.h"
#include "engine/files/npy.h"
#include "engine/files/output_file.h"
#include "engine/printable.h"
#include "models/onnx.h"

namespace hs::bench::commands {
namespace {

class ExportCommand : public cli::Command {
 public:
  std::string name() const override { return "export"; }
  std::string summary() const override { return "Write a trained model as ONNX, or its tensors for NumPy"; }
  std::string footnote() const override {
    return R"(Examples:
  halfstep-bench export --model digits.safetensors --onnx digits.onnx
  halfstep-bench export --model digits.safetensors --npy digits       # then: numpy.load("digits/linear.bias.npy")

docs/model_files.md describes the files and how other programs open them.
)";
  }
  void declare(cli::Flags& flags) override {
    flags.text("--model", model_, "FILE", "Model that train --save-model wrote");
    flags.text("--onnx", onnx_, "FILE", "Write the model as ONNX, - for stdout");
    flags.text("--npy", npy_, "DIR", "Folder to make, with a NumPy file for each tensor");
  }
  void run(const cli::Flags& flags) override;

 private:
  std::string model_, onnx_, npy_;
};

void ExportCommand::run(const cli::Flags&) {
  if (model_.empty()) fail(ExitCode::usage, "--model: is missing, expected the FILE that train --save-model wrote");
  if (onnx_.empty() && npy_.empty())
    fail(ExitCode::usage, "export: nothing to write, expected --onnx FILE or --npy DIR");
  const auto place = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(std::filesystem::path(path) / "", ignored);
  };
  if (!onnx_.empty() && !npy_.empty() && place(onnx_) == place(npy_))
    fail(ExitCode::usage, "--onnx and --npy: both go to {}", printable_text(npy_));
  const LoadedModel loaded = load_model(model_);
  // Both are written before either appears: an export that fails leaves nothing.
  OutputFile file(onnx_, "--onnx");
  std::optional<OutputFolder> folder;
  std::deque<OutputFile> files;
  if (!npy_.empty()) {
    folder.emplace(npy_);
    for (const auto& [name, tensor] : parameters_of(*loaded.model)) {
      files.emplace_back(folder->path() / (name + ".npy")).write(to_npy(tensor));
    }
    keep_all(files);
  }
  if (!onnx_.empty()) {
    file.write(to_onnx(*loaded.model, loaded.description));
    file.keep();
    cli::write_stderr(
        fmt::format("{}: {} as ONNX, {} bytes\n", printable_text(onnx_), loaded.description.model, file.position()));
  }
  if (folder) {
    folder->keep();
    cli::write_stderr(fmt::format("{}: {} tensors for NumPy\n", printable_text(npy_), files.size()));
  }
}

}  // namespace

std::unique_ptr<cli::Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace hs::bench::commands
