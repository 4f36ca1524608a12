// Flags of the sub-commands. CLI11 splits the words and prints the help; values are checked here, so that every mistake
// is one sentence that names the flag, says what was expected, and has exit code 2.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hs::bench::cli {

// The flags of one sub-command. Each is bound to a variable that holds its default, and is given as --flag VALUE or
// --flag=VALUE, once unless it is a list.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  void integer(const std::string& flag, int64_t& value, int64_t low, int64_t high, const std::string& help);
  void real(const std::string& flag, double& value, double low, double high, const std::string& help);
  void choice(const std::string& flag, std::string& value, const std::vector<std::string>& choices,
              const std::string& help);
  void text(const std::string& flag, std::string& value, const std::string& type, const std::string& help);
  void list(const std::string& flag, std::vector<std::string>& values, const std::string& type,
            const std::string& help);
  void on_off(const std::string& flag, bool& value, const std::string& help);
  // Words that belong to no flag, `low` or more and `high` at most.
  void words(const std::string& type, std::vector<std::string>& values, size_t low, size_t high,
             const std::string& help);

  bool given(const std::string& flag) const;

  // After parsing: fills the variables. Throws Error (usage).
  void read() const;

 private:
  using Reader = std::function<void(const std::string& value)>;
  void add(const std::string& flag, const std::string& type, const std::string& help, Reader reader, bool repeatable);

  struct Flag {
    std::string name;
    CLI::Option* option;
    Reader reader;
    bool repeatable;
  };
  struct Words {
    std::string type;
    CLI::Option* option;
    std::vector<std::string>* values;
    size_t low, high;
  };
  CLI::App& app_;
  std::vector<Flag> flags_;
  std::vector<Words> words_;
};

// A sub-command: declares its flags, then runs with them. run() throws hs::Error on failure.
class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;   // one line
  virtual std::string footnote() const = 0;  // end of its --help: examples
  virtual void declare(Flags& flags) = 0;
  virtual void run(const Flags& flags) = 0;
};

using Commands = std::vector<std::unique_ptr<Command>>;

// Reads the command line and runs what it asks for. Throws Error (usage) for every mistake in it.
void run_command_line(const Commands& commands, int argc, const char* const* argv);

// The one of `words` that is a few typing errors away from `word`, or an empty string.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace hs::bench::cli
