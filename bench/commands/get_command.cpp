// halfstep-bench data get: downloads a data set, by the script that knows where each is, and its checksums (data/get).
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "bench/cli/environment.h"
#include "bench/commands/commands.h"

namespace hs::bench::commands {
namespace {

class GetCommand : public cli::Command {
  std::vector<std::string> words_;

  void declare(cli::Flags& flags) override {
    flags.examples(
        {"data get mnist", "data get cifar10 /some/folder"},
        "Without DIR, into ~/.cache/halfstep/NAME, where it is looked for. Every file is checked by its SHA-256. "
        "HALFSTEP_MIRRORS\nhas other places to take it from: base URLs, or folders with the files, for a "
        "machine without a network.");
    flags.words("NAME [DIR]", words_, 1, 2,
                "mnist, fashion_mnist, cifar10 or tinyshakespeare: 55, 55, 184 and 1 MB; and the folder for it");
  }

  void run(const cli::Flags&) override {
    std::vector<std::string> words = {"bash", cli::shared_file("get")};
    words.insert(words.end(), words_.begin(), words_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_DFL);
    ::execvp("bash", arguments.data());
    fail(ExitCode::io, "data get: bash cannot be started: {}; install it", std::strerror(errno));
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_get_command() { return std::make_unique<GetCommand>(); }

}  // namespace hs::bench::commands
