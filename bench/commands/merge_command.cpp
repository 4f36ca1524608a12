// halfstep-bench merge: adapters and the model that they were trained on as one model.
#include "bench/cli/console.h"
#include "bench/commands/commands.h"
#include "bench/measure/fine_tuning.h"
#include "engine/check.h"
#include "engine/printable.h"
#include "models/adapter_file.h"

namespace hs::bench::commands {
namespace {

class MergeCommand : public cli::Command {
 public:
  std::string name() const override { return "merge"; }
  std::string summary() const override { return "Make one model of a model and its adapters"; }
  std::string footnote() const override {
    return R"(Examples:
  halfstep-bench train --start base.safetensors --data play --lora 4 --save-adapters play-adapters
  halfstep-bench merge --model base.safetensors --adapters play-adapters --output play.safetensors

The result is a model like any other. docs/techniques/lora.md explains adapters.
)";
  }
  void declare(cli::Flags& flags) override {
    flags.text("--model", model_, "FILE", "Model that the adapters were trained on");
    flags.text("--adapters", adapters_, "DIR", "Adapters that train --save-adapters wrote");
    flags.text("--output", output_, "FILE", "Where the model goes");
  }
  void run(const cli::Flags& flags) override;

 private:
  std::string model_, adapters_, output_;
};

void MergeCommand::run(const cli::Flags&) {
  for (const auto& [flag, value] : {std::pair("--model", model_), {"--adapters", adapters_}, {"--output", output_}}) {
    if (value.empty())
      fail(ExitCode::usage, "{}: is missing; expected --model FILE --adapters DIR --output FILE", flag);
  }
  const LoadedModel base = load_model(model_);
  const LoraOptions options = load_adapters(*base.model, measure::sha256(*base.model), adapters_);
  write_safetensors(output_, merged_parameters(*base.model, options), describe(base.description));
  cli::write_stdout(fmt::format("{}: {} with adapters of rank {} from {}\n", printable_text(output_),
                                printable_text(model_), options.rank, printable_text(adapters_)));
}

}  // namespace

std::unique_ptr<cli::Command> make_merge_command() { return std::make_unique<MergeCommand>(); }

}  // namespace hs::bench::commands
