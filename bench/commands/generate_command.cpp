// halfstep-bench generate: text from a trained model of a text.
#include <unistd.h>

#include "bench/commands/commands.h"
#include "models/generate.h"

namespace hs::bench::commands {
namespace {

class GenerateCommand : public cli::Command {
  std::string model_, prompt_, device_ = "auto";
  GenerateOptions options_;
  int64_t threads_ = 0;

  void declare(cli::Flags& flags) override {
    flags.examples({"train --recipe bench/recipes/tinyshakespeare.json --save-model shakespeare.safetensors",
                    "generate --model shakespeare.safetensors --prompt \"ROMEO:\" --temperature 0.8"},
                   "Prints the prompt and what the model writes after it. The same seed writes the same text.");
    flags.model_file(model_);
    flags.text("--prompt", own(), prompt_, "TEXT",
               "What the text begins with (default: a line break, or the first symbol)");
    flags.integer("--length", own(), options_.length, 1, 1'000'000, "Symbols to write");
    flags.real("--temperature", own(), options_.temperature, 0, 100,
               "Below 1 likely symbols become likelier; 0: always the likeliest");
    flags.integer("--top-k", own(), options_.top_k, 0, 256,
                  "Draw from this many of the likeliest symbols, 0: from all");
    flags.seed(options_.seed);
    flags.threads(threads_);
    flags.device(device_);
  }

  void run(const cli::Flags& flags) override {
    if (model_.empty()) fail(ExitCode::usage, "--model: is missing, expected the FILE that train --save-model wrote");
    cli::use_threads(threads_);
    const Device device = cli::resolve_device(device_);
    const LoadedModel loaded = load_model(model_);
    const ParameterArena arena(*loaded.model, device);
    if (!flags.given("--prompt")) prompt_ = default_prompt(loaded.description.vocabulary);
    std::string text = prompt_;
    generate(
        *loaded.model, loaded.description, prompt_, options_,
        [&](char symbol) {
          cli::check_signals("while generating; the text was not written");
          text.push_back(symbol);
          return true;
        },
        device);
    text += '\n';
    ::isatty(STDOUT_FILENO) != 0 ? cli::write_stdout(text) : cli::write_bytes(text);  // escaped on a terminal alone
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace hs::bench::commands
