// The commands and their flags. Every usage error is one sentence that names the flag and says what was expected, with
// exit code 2.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>

#include "bench/cli/facts.h"
#include "bench/cli/inputs.h"
#include "bench/cli/json_file.h"

namespace hs::bench::cli {

class Flags;

// A command: declares its flags and what else --help says, then runs with them. run() throws hs::Error on failure.
class Command {
 public:
  virtual ~Command() = default;
  virtual void declare(Flags& flags) = 0;
  virtual void declare_outputs(Flags&) {}
  void declare_all(Flags& flags) { declare(flags), declare_outputs(flags); }
  virtual void run(const Flags& flags) = 0;
  const std::string& name() const { return name_; }  // the words that users type; also of its records

 private:
  friend struct Declared;
  std::string name_;
};

// The flags of one command. Each is declared once, with its name, its facts, its values, help and the variable that it
// sets, which holds the default and must outlive the Flags. Users write --flag VALUE or --flag=VALUE, once unless it is
// a list. Each that has a value is a member of the record's "config", under its own name ("--save-every" as
// "save_every"), unless what follows its declaration says otherwise.
class Flags : NonCopyable {
 public:
  // command: the words of it that users type.
  explicit Flags(std::string command = "") : command_(std::move(command)) {}

  using Reader = std::function<void(const std::string& value)>;  // throws Error (usage) for an invalid value
  using Value = std::function<Json()>;
  struct Flag {
    std::string name;
    Facts facts;
    std::string type, help;  // type: empty for a switch
    Reader reader;
    Value value;
    bool repeatable;
    std::string member;                   // its name in records
    std::vector<std::string> words = {};  // that are given
    std::vector<std::string> choices = {};
    std::function<Json(const std::string& value)> saved = {};
  };

  template <class Number>  // int64_t, int32_t or uint64_t
  Flags& integer(const std::string& flag, const Facts& facts, Number& value, std::type_identity_t<Number> low,
                 std::type_identity_t<Number> high, const std::string& help);
  // Also the word "auto", which stands for the value `automatic`.
  Flags& integer_or_auto(const std::string& flag, const Facts& facts, int64_t& value, int64_t automatic, int64_t low,
                         int64_t high, const std::string& help);
  template <class Number>  // double or float
  Flags& real(const std::string& flag, const Facts& facts, Number& value, double low, double high,
              const std::string& help);
  Flags& choice(const std::string& flag, const Facts& facts, std::string& value, const std::vector<std::string>& names,
                const std::string& help);
  // A choice whose names stand for values of any type.
  template <class T>
  Flags& named_choice(const std::string& flag, const Facts& facts, T& value,
                      const std::vector<std::pair<std::string, T>>& choices, const std::string& help);
  Flags& text(const std::string& flag, const Facts& facts, std::string& value, const std::string& type,
              const std::string& help);
  // Calls the reader if the flag is given. A record contains the text, or `by_default`.
  Flags& text(const std::string& flag, const Facts& facts, const Reader& reader, const std::string& by_default,
              const std::string& type, const std::string& help);
  Flags& list(const std::string& flag, const Facts& facts, std::vector<std::string>& values, const std::string& type,
              const std::string& help);
  Flags& on_off(const std::string& flag, const Facts& facts, bool& value, const std::string& help);
  // Arguments that are no flags, from `low` to `high` of them.
  Flags& words(const std::string& type, std::vector<std::string>& values, size_t low, size_t high,
               const std::string& help);

  // Flags that several commands share (common_flags.cpp).
  Flags& model(std::string& value);
  // A record has null for a model without blocks, or, of windows of a text, without a context.
  Flags& blocks(int64_t& value, const std::string& model);
  Flags& context(int64_t& value, const std::string& model);
  Flags& model_file(std::string& path);  // --model FILE, which is none of a run's states
  Flags& data(DataChoice& choice);       // --data, and the three that change what it is
  // --unknown: what is done about characters that are no symbols of a trained model.
  Flags& unknown(bool& drops, const Facts& facts);
  Flags& size(std::optional<ImageShape>& value);
  Flags& skip_damaged(bool& value);
  Flags& train(int64_t& samples);  // where the default is automatic_samples, also the word auto
  Flags& test(int64_t& samples);
  Flags& epochs(int64_t& value);
  Flags& batch(int64_t& value, int64_t most = 1'000'000);
  Flags& learning_rate(float& value);
  Flags& seed(uint64_t& value);
  Flags& repeat(int64_t& value);
  Flags& threads(int64_t& value);
  Flags& device(std::string& name);                   // see resolve_device()
  Flags& precision(std::optional<Precision>& value);  // none: auto; see resolve_precision()
  Flags& kernels(std::vector<std::string>& assignments);
  Flags& plugins(std::vector<std::string>& files);  // for load_plugins(); a record has them by name and SHA-256
  // Five flags, each recorded as a member of "config" or of the named object in it. `cache` is what is given, a record
  // has that of `options`.
  Flags& loading(LoaderOptions& options, std::optional<CacheMode>& cache, const std::string& object = "");
  Flags& dry_run(bool& value);
  Flags& quiet(bool& value);
  // --recipe FILE: a JSON object whose members are flags of this command, by their names without dashes, except those
  // that name something to write; or a record of train, whose settings count where this command has their flags. What
  // stands on the command line counts, if both give a flag. Recorded as the file's path.
  Flags& recipe();

  // The end of --help: lines that the program's name is put before, and what to read after them.
  Flags& examples(const std::vector<std::string>& lines, const std::string& further);

  // What `saved` makes of the last declared flag's value: an object of flags and their words, as settings() returned
  // it, that count where they are not given.
  Flags& continues(std::function<Json(const std::string& value)> saved) {
    return flags_.back().saved = std::move(saved), *this;
  }

  // Records the flag that was declared last as `member`, "a/b" as the member b of the object a; or not at all.
  Flags& record(const std::string& member);
  Flags& unrecorded();
  // Records what config() gets from the function: beside the flags, or in place of the flag of this name.
  Flags& record(const std::string& member, Value value);

  const std::vector<Flag>& all() const { return flags_; }
  bool given(std::string_view flag) const;
  bool has(std::string_view flag) const;
  // The flags that are given, with their words: those that name something to write, or all others. A path among the
  // others is one that names the same file wherever the program is started.
  Json settings(bool that_write = false) const;

  // Sets the variables from the words of the command line that follow the command. Throws Error (usage).
  void read(const std::vector<std::string>& words);
  // A line or more for each flag, in groups; of a command with many flags only those that most people use, unless all
  // are wanted.
  std::string help(bool all) const;
  // All of it for `man`, and what bash completes: of this command, as parts of manual() and completion().
  std::string man_section() const;
  std::string completion_case() const;
  // The members of a record's "config", in declaration order.
  Json config() const;

 private:
  struct Words {
    std::string type, help;
    std::vector<std::string>* values;
    size_t low, high;
  };
  static std::string without_dashes(std::string_view word);
  const Flag* find(std::string_view flag) const;
  std::string meant_by(std::string_view word) const;
  void split(const std::vector<std::string>& words);
  void check_no_empty_word() const;
  void read_recipe();
  Json recipe_of(const Json& record, const std::string& path) const;
  void read_saved();
  Flags& add(const std::string& flag, const Facts& facts, const std::string& type, const std::string& help,
             Reader reader, Value value, bool repeatable = false);
  Flags& choice_of(const std::string& flag, const Facts& facts, const std::vector<std::string>& names,
                   const Reader& reader, const Value& value, const std::string& help);

  const std::string command_;
  std::vector<Flag> flags_;
  Words words_ = {};
  std::string examples_;
  std::vector<std::string> given_words_;
  std::vector<std::pair<std::string, Value>> members_;
};

template <class T>
Flags& Flags::named_choice(const std::string& flag, const Facts& facts, T& value,
                           const std::vector<std::pair<std::string, T>>& choices, const std::string& help) {
  using Choice = std::pair<std::string, T>;
  const auto read = [&value, choices](const std::string& word) {
    value = std::ranges::find(choices, word, &Choice::first)->second;
  };
  return choice_of(
      flag, facts, mapped(choices, &Choice::first), read,
      [&value, choices] { return std::ranges::find(choices, value, &Choice::second)->first; }, help);
}

// Sets `path`, of a flag that takes a model's file, and refuses the states of a run.
Flags::Reader model_reader(const std::string& flag, std::string& path);

struct CommandEntry {
  std::string_view words;  // that users type: one or two
  std::unique_ptr<Command> (*make)();
  std::string_view summary;
  std::string_view group = "";  // that begins with it in --help
};

// A command that has declared its flags.
struct Declared {
  explicit Declared(const CommandEntry& entry);
  std::unique_ptr<Command> command;
  Flags flags;
};

// The page for `man`, and the script that makes bash complete, of all commands with their flags (manual.cpp).
std::string manual(std::span<const CommandEntry> commands);
std::string completion(std::span<const CommandEntry> commands);

// Runs the command that the arguments name. Throws Error (usage) for any mistake in them.
void run_command_line(std::span<const CommandEntry> commands, int argc, const char* const* argv);

// A word as a shell takes it, printable; and " --flag word" for each word of an object as settings() returns.
std::string quoted(const std::string& word);
std::string words_of(const Json& settings);

// The number that a user wrote for it: 0.001 for 0.001f, which is 0.0010000000474974513.
double as_written(float value);

// The element of `words` that is meant by `word`, as other programs have it or within a few typing errors, or an empty
// string.
std::string nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace hs::bench::cli
