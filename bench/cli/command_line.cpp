#include "bench/cli/command_line.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "bench/cli/build_info.h"
#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/interrupt.h"
#include "engine/check.h"
#include "engine/files/input_file.h"
#include "engine/printable.h"

namespace hs::bench::cli {
namespace {

// The whole argument must be a number. Not CLI::Range: CLI11 accepts " 5", "0x10" and "+5", and its message does not
// say which kind of number was expected. from_chars rejects these and ignores the locale.
template <class Number>
Flags::Reader number_reader(const std::string& flag, Number& value, Number low, Number high) {
  return [flag, &value, low, high](const std::string& word) {
    Number number{};
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, number);
    // Written so that NaN fails.
    if (error != std::errc() || stop != end || !(number >= low && number <= high)) {
      constexpr const char* kind = std::is_integral_v<Number> ? "whole number" : "number";
      fail(ExitCode::usage, "{} {}: expected a {} from {} to {}", flag, word, kind, low, high);
    }
    value = number;
  };
}

std::string without_dashes(std::string_view word) {
  word = word.substr(0, word.find('='));
  return std::string(word.substr(std::min(word.find_first_not_of('-'), word.size())));
}

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

bool is_flag(const std::string& word) { return word.starts_with('-'); }

// `known`: the flags to suggest from.
[[noreturn]] void fail_unknown_flag(const std::string& flag, const std::vector<std::string>& known,
                                    const std::string& command) {
  const std::string meant = nearest(without_dashes(flag), known);
  const std::string advice = meant.empty() ? "" : fmt::format("did you mean --{}? ", meant);
  fail(ExitCode::usage, "{}: unknown flag; {}see {} --help", flag.substr(0, flag.find('=')), advice, command);
}

// CLI11 would take the next argument as the value of "--flag=".
void check_no_empty_value(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      fail(ExitCode::usage, "{}: the value is empty", word.substr(0, word.size() - 1));
    }
  }
}

bool is_switch_with_value(const std::vector<CLI::App*>& parsers, const std::string& word) {
  const size_t end = word.find('=');
  if (!is_flag(word) || end == std::string::npos) return false;
  return std::ranges::any_of(parsers, [&](const CLI::App* parser) {
    const CLI::Option* option = parser->parsed() ? parser->get_option_no_throw(word.substr(0, end)) : nullptr;
    return option != nullptr && option->get_items_expected_max() == 0;
  });
}

std::string program_footnote() {
  std::string text = "Examples:\n";
  text += "  halfstep-bench train                        the headline experiment: 20,000 digits, 5 epochs\n";
  text += "  halfstep-bench train --repeat 3 --json -    the same with three seeds, results as JSON\n";
  text += "  halfstep-bench techniques                   every technique alone and together, with intervals\n";
  text += "  halfstep-bench info                         what was built, and which kernels there are\n\n";
  text += "Exit codes:\n";
  for (const ExitCodeRow& row : exit_code_table) {
    text += fmt::format("  {:>3}  {}\n", static_cast<int>(row.code), row.meaning);
  }
  return text;
}

std::string version_line() {
  return fmt::format("{} {} (commit {}, {}, cuda {}, devices: {})\n", program_name, build_info.version,
                     build_info.commit, build_info.build_type, build_info.cuda, device_names());
}

// Commands by their former names, each with what it is now: "predict-ranks", or words such as "model export".
constexpr std::pair<std::string_view, std::string_view> former_names[] = {
    {"scale", "predict-ranks"},
};

[[noreturn]] void fail_no_command(const Commands& commands, const std::string& word) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command->name());
  if (word.empty()) {
    fail(ExitCode::usage, "a sub-command is missing, one of {}; try {} train, or {} --help", fmt::join(names, ", "),
         program_name, program_name);
  }
  for (const auto& [former, now] : former_names) {
    if (word == former) fail(ExitCode::usage, "{} is now {}", former, now);
  }
  const std::string meant = nearest(word, names);
  const std::string advice = meant.empty() ? fmt::format("there are {}", fmt::join(names, ", "))  //
                                           : fmt::format("did you mean {}?", meant);
  fail(ExitCode::usage, "{}: unknown sub-command; {}", word, advice);
}

}  // namespace

Flags& Flags::add(const std::string& flag, const std::string& type, const std::string& help, Reader reader, Value value,
                  bool repeatable) {
  CLI::Option* option = app_.add_option(
      flag, [](const CLI::results_t&) { return true; }, help);
  // One argument follows each occurrence of the flag; read() counts the occurrences.
  option->type_name(type)->expected(1)->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  std::string member = without_dashes(flag);
  std::ranges::replace(member, '-', '_');
  flags_.push_back(
      {flag, option, std::move(reader), std::move(value), repeatable, std::move(member), type == "N" || type == "X"});
  return *this;
}

double as_written(float value) { return std::stod(fmt::format("{}", value)); }

Flags& Flags::integer(const std::string& flag, int64_t& value, int64_t low, int64_t high, const std::string& help) {
  return add(flag, "N", fmt::format("{}, {} to {} (default {})", help, low, high, value),
             number_reader(flag, value, low, high), [&value] { return value; });
}

Flags& Flags::integer_or_auto(const std::string& flag, int64_t& value, int64_t automatic, int64_t low, int64_t high,
                              const std::string& help) {
  const auto read = [&value, automatic, number = number_reader(flag, value, low, high)](const std::string& word) {
    if (word == "auto") {
      value = automatic;
    } else {
      number(word);
    }
  };
  const Value written = [&value, automatic] { return value == automatic ? Json("auto") : Json(value); };
  const std::string by_default = value == automatic ? "auto" : std::to_string(value);
  return add(flag, "N", fmt::format("{}, {} to {} or auto (default {})", help, low, high, by_default), read, written);
}

Flags& Flags::integer(const std::string& flag, int32_t& value, int32_t low, int32_t high, const std::string& help) {
  return add(flag, "N", fmt::format("{}, {} to {} (default {})", help, low, high, value),
             number_reader(flag, value, low, high), [&value] { return value; });
}

Flags& Flags::real(const std::string& flag, float& value, double low, double high, const std::string& help) {
  const auto read = [flag, &value, low, high](const std::string& word) {
    double number = 0;
    number_reader(flag, number, low, high)(word);
    value = static_cast<float>(number);
  };
  return add(flag, "X", fmt::format("{}, {} to {} (default {})", help, low, high, value), read,
             [&value] { return as_written(value); });
}

Flags& Flags::real(const std::string& flag, double& value, double low, double high, const std::string& help) {
  return add(flag, "X", fmt::format("{}, {} to {} (default {})", help, low, high, value),
             number_reader(flag, value, low, high), [&value] { return value; });
}

Flags& Flags::choice_of(const std::string& flag, const std::vector<std::string>& names, const Reader& reader,
                        const Value& value, const std::string& help) {
  const auto checked = [flag, names, reader](const std::string& word) {
    if (std::ranges::find(names, word) != names.end()) return reader(word);
    fail(ExitCode::usage, "{} {}: expected one of {}", flag, word, fmt::join(names, ", "));
  };
  const auto by_default = value().get<std::string>();
  return add(flag, "NAME", fmt::format("{}: {} (default {})", help, fmt::join(names, ", "), by_default), checked,
             value);
}

Flags& Flags::choice(const std::string& flag, std::string& value, const std::vector<std::string>& names,
                     const std::string& help) {
  const auto read = [&value](const std::string& word) { value = word; };
  const Value written = [&value] { return value; };
  return choice_of(flag, names, read, written, help);
}

Flags& Flags::text(const std::string& flag, std::string& value, const std::string& type, const std::string& help) {
  const auto read = [&value](const std::string& word) { value = word; };
  const Value written = [&value] { return value; };
  return add(flag, type, help, read, written);
}

Flags& Flags::text(const std::string& flag, const Reader& reader, const std::string& by_default,
                   const std::string& type, const std::string& help) {
  add(flag, type, help, reader, nullptr);
  flags_.back().value = [option = flags_.back().option, by_default] {
    return option->count() > 0 ? option->results().back() : by_default;
  };
  return *this;
}

Flags& Flags::list(const std::string& flag, std::vector<std::string>& values, const std::string& type,
                   const std::string& help) {
  const auto read = [&values](const std::string& word) { values.push_back(word); };
  const Value written = [&values] { return values; };
  return add(flag, type, help, read, written, true);
}

Flags& Flags::on_off(const std::string& flag, bool& value, const std::string& help) {
  app_.add_flag(flag, value, help)->disable_flag_override();
  return *this;
}

Flags& Flags::words(const std::string& type, std::vector<std::string>& values, size_t low, size_t high,
                    const std::string& help) {
  CLI::Option* option = app_.add_option(
      type, [](const CLI::results_t&) { return true; }, help);
  option->type_name("")->expected(0, 1 << 20)->allow_extra_args(true);
  words_.push_back({type, option, &values, low, high});
  return *this;
}

Flags& Flags::record(const std::string& member) {
  return record(member.empty() ? flags_.back().member : member, flags_.back().value);
}

Flags& Flags::record(const std::string& member, Value value) {
  members_.emplace_back(member, std::move(value));
  return *this;
}

Json Flags::config() const {
  Json config = Json::object();
  for (const auto& [member, value] : members_) config[Json::json_pointer("/" + member)] = value();
  return config;
}

bool Flags::given(const std::string& flag) const { return app_.get_option(flag)->count() > 0; }

Flags& Flags::writes() {
  flags_.back().writes = true;
  return *this;
}

Flags& Flags::continues(std::function<Json(const std::string& value)> saved) {
  flags_.back().saved = std::move(saved);
  return *this;
}

Json Flags::settings(bool that_write) const {
  Json given = Json::object();
  for (const Flag& flag : flags_) {
    if (flag.option->count() > 0 && flag.writes == that_write) given[flag.name] = flag.option->results();
  }
  return given;
}

Flags& Flags::recipe() {
  const Reader read_already = [](const std::string&) {};
  return text("--recipe", read_already, "", "FILE", "Take flags from a JSON file; those given here count before it")
      .record();
}

// As if the members were flags of the command line.
void Flags::read_recipe() const {
  const CLI::Option* file = app_.get_option_no_throw("--recipe");
  if (file == nullptr || file->count() == 0) return;
  const std::string path = file->results().back();
  constexpr size_t largest_file = size_t{1} << 20;
  const std::vector<uint8_t> bytes = read_file(path, largest_file);
  const Json recipe = parse(std::string(bytes.begin(), bytes.end()), path);
  if (!recipe.is_object()) fail(ExitCode::bad_input, "{}: a recipe is a JSON object of flags", path);
  for (const auto& [key, value] : recipe.items()) {
    const auto flag = std::ranges::find(flags_, "--" + key, &Flag::name);
    if (flag == flags_.end() || key == "recipe") {
      const std::string meant = nearest(key, long_flags(app_));
      fail(ExitCode::usage, "{}: {}: no flag of {} that takes a value{}", path, printable_text(key), app_.get_name(),
           meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
    }
    if (flag->writes)
      fail(ExitCode::usage, "{}: {}: a recipe names nothing to write; give --{} on the command line", path, key, key);
    if (flag->option->count() > 0) continue;
    const auto add = [&](const Json& word) {
      if (!word.is_string() && !(word.is_number() && flag->is_number)) {
        fail(ExitCode::usage, "{}: {}: expected a string{}{}", path, key, flag->is_number ? " or a number" : "",
             flag->repeatable ? ", or a list of them" : "");
      }
      flag->option->add_result(word.is_string() ? word.get<std::string>() : word.dump());
    };
    if (flag->repeatable && value.is_array()) {
      for (const Json& word : value) add(word);
    } else {
      add(value);
    }
  }
}

void Flags::read_saved() const {
  for (const Flag& by : flags_) {
    if (!by.saved || by.option->count() == 0) continue;
    const Json saved = by.saved(by.option->results().back());
    for (const Flag& flag : flags_) {
      if (flag.option->count() > 0 || flag.writes || !saved.contains(flag.name)) continue;
      for (const Json& word : saved[flag.name]) {
        if (word.is_string()) flag.option->add_result(word.get<std::string>());
      }
    }
  }
}

void Flags::check_no_empty_word() const {
  for (const Flag& flag : flags_) {
    for (const std::string& word : flag.option->results()) {
      if (word.empty()) fail(ExitCode::usage, "{}: the value is empty", flag.name);
    }
  }
}

void Flags::read() const {
  check_no_empty_word();  // before one names a file to read
  read_recipe();
  read_saved();
  check_no_empty_word();
  for (const Flag& flag : flags_) {
    const std::vector<std::string> words = flag.option->results();
    for (const std::string& word : words) {
      if (word.starts_with("--")) fail(ExitCode::usage, "{}: a value is missing before {}", flag.name, word);
    }
    if (words.size() > 1 && !flag.repeatable) {
      fail(ExitCode::usage, "{}: given {} times, with {}; give it once", flag.name, words.size(),
           fmt::join(words, " and "));
    }
    for (const std::string& word : words) flag.reader(word);
  }
  for (const Words& words : words_) {
    *words.values = words.option->results();
    const size_t count = words.values->size();
    if (count > words.high) fail(ExitCode::usage, "{}: unexpected word", (*words.values)[words.high]);
    if (count >= words.low) continue;
    fail(ExitCode::usage, "{} {}: {} given, expected {}{}; see {} {} --help", app_.get_name(), words.type, count,
         words.low, words.high > words.low ? " or more" : "", program_name, app_.get_name());
  }
}

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  // The Damerau-Levenshtein distance, row by row: substitution, insertion, deletion and swap of neighbours.
  const auto distance = [word](const std::string& other) {
    std::vector<size_t> before_last, last, row(other.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      before_last = std::exchange(last, row);
      row[0] = i;
      for (size_t j = 1; j <= other.size(); ++j) {
        row[j] = std::min({last[j - 1] + (word[i - 1] != other[j - 1]), last[j] + 1, row[j - 1] + 1});
        if (i < 2 || j < 2 || word[i - 1] != other[j - 2] || word[i - 2] != other[j - 1]) continue;
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    return row[other.size()];
  };
  std::string best;
  size_t best_distance = word.size() / 2 + 1;
  for (const std::string& other : words) {
    if (word.size() > other.size() + best_distance) continue;  // further than that
    // A user who expects abbreviations to work types the beginning of a flag.
    const size_t d = word.size() > 1 && other.starts_with(word) ? 1 : distance(other);
    if (d < best_distance) {
      best = other;
      best_distance = d;
    }
  }
  return best;
}

namespace {

void run(Command& command, const CLI::App& parser, const Flags& flags) {
  // Before the positional arguments: the value of a misspelt flag may have become one.
  const std::string words = fmt::format("{} {}", program_name, command.name());
  const std::vector<std::string> left_over = parser.remaining();
  const auto flag = std::ranges::find_if(left_over, is_flag);
  if (flag != left_over.end()) fail_unknown_flag(*flag, long_flags(parser), words);
  try {
    flags.read();
    if (!left_over.empty()) fail(ExitCode::usage, "{}: unexpected word; see {} --help", left_over.front(), words);
    name_running_command(command.name());
    command.run(flags);
  } catch (const Error& error) {
    // The library names a setting, "augment shift=x: expected ...", but the user typed a flag.
    std::string message = error.what();
    const std::string setting = "--" + message.substr(0, message.find(' '));
    if (parser.get_option_no_throw(setting)) throw error.with_message("--" + message);
    if (error.kind() == ErrorKind::out_of_memory) {
      if (parser.get_option_no_throw("--accumulate")) message += ", several to a step by --accumulate";
      if (parser.get_option_no_throw("--checkpoint")) message += ", or --checkpoint budget=auto";
      throw error.with_message(message);
    }
    throw;
  }
}

}  // namespace

void run_command_line(const Commands& commands, int argc, const char* const* argv) {
  check_no_empty_value(argc, argv);
  CLI::App app("Trains small networks with the halfstep engine and reports time, accuracy and memory.", program_name);
  app.get_formatter()->column_width(30);
  app.allow_extras();
  app.set_help_flag("-h,--help", "This text");
  bool version = false;
  app.add_flag("--version", version, "Version, commit, build type and devices, on one line")->disable_flag_override();
  std::vector<CLI::App*> parsers;
  std::vector<Flags> flags;
  for (const auto& command : commands) {
    CLI::App* parser = app.add_subcommand(command->name(), command->summary());
    command->declare(flags.emplace_back(*parser));
    parsers.push_back(parser);
  }
  app.require_subcommand(0, 1);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    // Not CLI11's footer, which newer versions wrap.
    std::string footnote = program_footnote();
    for (size_t i = 0; i < commands.size(); ++i) {
      if (parsers[i]->parsed()) footnote = commands[i]->footnote();
    }
    std::string help = app.help();
    help.resize(help.find_last_not_of('\n') + 1);
    return write_stdout(help + "\n\n" + footnote);
  } catch (const CLI::ArgumentMismatch&) {
    // A switch with a value, "--quiet=1", or a last argument that is a flag without its value.
    for (const char* word : std::span(argv, static_cast<size_t>(argc)).subspan(1)) {
      if (is_switch_with_value(parsers, word)) fail(ExitCode::usage, "--{}: takes no value", without_dashes(word));
    }
    fail(ExitCode::usage, "{}: a value is missing", argv[argc - 1]);
  } catch (const CLI::ParseError& error) {
    fail(ExitCode::usage, "{}; see {} --help", error.what(), program_name);
  }

  if (version) return write_stdout(version_line());
  const std::vector<std::string> unknown = app.remaining();
  if (!unknown.empty()) {
    if (!is_flag(unknown.front())) fail_no_command(commands, unknown.front());
    std::vector<std::string> known = long_flags(app);
    for (const CLI::App* parser : parsers) {
      const std::string flag = "--" + without_dashes(unknown.front());
      std::ranges::copy(long_flags(*parser), std::back_inserter(known));
      if (parser->get_option_no_throw(flag) == nullptr) continue;
      fail(ExitCode::usage, "{}: goes after the sub-command, {} {} {}", flag, program_name, parser->get_name(), flag);
    }
    fail_unknown_flag(unknown.front(), known, program_name);
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    if (parsers[i]->parsed()) return run(*commands[i], *parsers[i], flags[i]);
  }
  fail_no_command(commands, "");
}

}  // namespace hs::bench::cli
