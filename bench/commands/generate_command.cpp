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
  bool drops_unknown_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples({"train --recipe bench/recipes/tinyshakespeare.json --save-model shakespeare.safetensors",
                    "generate --model shakespeare.safetensors --prompt \"ROMEO:\" --temperature 0.8"},
                   "Prints the prompt and what the model writes after it. The same seed writes the same text.");
    flags.model_file(model_);
    flags.text("--prompt", own(), prompt_, "TEXT",
               "What the text begins with (default: a line break, or the first symbol)");
    flags.unknown(drops_unknown_, own());
    flags.integer("--length", own(), options_.length, 1, 1'000'000, "Symbols to write");
    flags.real("--temperature", own(), options_.temperature, 0, 100,
               "Below 1 likely symbols become likelier; 0: always the likeliest");
    flags.integer("--top-k", own(), options_.top_k, 0, max_text_symbols,
                  "Draw from this many of the likeliest symbols, 0: from all");
    flags.seed(options_.seed);
    flags.threads(threads_);
    flags.device(device_);
  }

  // Of the prompt.
  void use_known_part(const Vocabulary& vocabulary) {
    const EncodedText encoded = encode(prompt_, vocabulary);
    if (encoded.left_out == 0 || vocabulary.empty()) return;  // generate() refuses a model of images
    const std::string unknown = encoded.left_out_text(vocabulary);
    if (!drops_unknown_) fail(ExitCode::usage, "--prompt: has {}; leave it out, or give --unknown drop", unknown);
    cli::notice("--prompt: left out " + unknown);
    prompt_.clear();
    for (const uint16_t symbol : encoded.symbols) prompt_ += vocabulary[symbol];
  }

  void run(const cli::Flags& flags) override {
    if (model_.empty()) fail(ExitCode::usage, "--model: is missing, expected the FILE that train --save-model wrote");
    cli::use_threads(threads_);
    const Device device = cli::resolve_device(device_);
    const LoadedModel loaded = load_model(model_);
    const ParameterArena arena(*loaded.model, device);
    const Vocabulary& vocabulary = loaded.description.vocabulary;
    if (!flags.given("--prompt")) prompt_ = default_prompt(vocabulary);
    use_known_part(vocabulary);
    std::string text = prompt_;
    generate(
        *loaded.model, loaded.description, prompt_, options_,
        [&](const std::string& symbol) {
          cli::check_signals("while generating; the text was not written");
          text += symbol;
          return true;
        },
        device);
    text = as_utf8(text) + '\n';
    ::isatty(STDOUT_FILENO) != 0 ? cli::write_stdout(text) : cli::write_bytes(text);  // escaped on a terminal alone
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace hs::bench::commands
