// halfstep-bench kernel build: compiles a kernel outside of the tree into a plug-in, for --plugin.
#include "bench/cli/plugins.h"
#include "bench/commands/commands.h"

namespace hs::bench::commands {
namespace {

class KernelBuildCommand : public cli::Command {
  std::vector<std::string> sources_;
  std::string output_;

  void declare(cli::Flags& flags) override {
    flags.examples(R"(Examples:
  halfstep-bench kernel build my_relu.cpp              # writes my_relu.so
  halfstep-bench bench ops --plugin my_relu.so
  halfstep-bench train --plugin my_relu.so --kernel relu_forward=my_relu

By $CXX, or the first of c++, g++ and clang++ on the PATH; a .cu file by nvcc, or for the emulator where the program is
built for it. docs/add_a_kernel.md says how to write one.
)");
    flags.words("FILE", sources_, 1, 1, "A .cpp or .cu file that includes <halfstep/kernel.h>");
    flags.text("--output", output_, "FILE", "The plug-in; by default named as FILE, with .so").writes();
  }

  void run(const cli::Flags&) override {
    const std::filesystem::path source = sources_[0];
    const std::string output =
        output_.empty() ? std::filesystem::path(source).replace_extension(".so").string() : output_;
    const auto start = Clock::now();
    cli::build_plugin(source, output);
    cli::write_stdout(fmt::format("{}: built in {:.1f} s\n", output, seconds_since(start)));
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_kernel_build_command() { return std::make_unique<KernelBuildCommand>(); }

}  // namespace hs::bench::commands
