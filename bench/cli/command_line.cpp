#include "bench/cli/command_line.h"

#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>

#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/interrupt.h"
#include "data/open_dataset.h"
#include "engine/check.h"
#include "engine/files/input_file.h"
#include "engine/parsed_number.h"
#include "engine/printable.h"
#include "models/models.h"

namespace hs::bench::cli {
namespace {

// By Group.
constexpr const char* group_names[] = {"Flags", "Model", "Data", "Training", "Speed", "Memory", "Processes", "Output"};
constexpr size_t max_in_help = 30;  // flags; more are shown by --help-all
constexpr size_t help_column = 28;

// Of a terminal that says how wide it is.
size_t help_width() {
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? std::clamp<size_t>(size.ws_col, 60, 120) : 120;
}

bool is_flag(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

// A line of --help, whose text goes on below itself.
std::string help_line(const std::string& what, const std::string& text) {
  std::string lines = fmt::format("  {:<{}}", what, help_column - 3);
  size_t column = lines.size();
  const size_t width = help_width();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (column + 1 + end - at > width) {
      lines += "\n" + std::string(help_column - 1, ' ');
      column = help_column - 1;
    }
    lines += " " + text.substr(at, end - at);
    column += 1 + end - at;
    at = end + 1;
  }
  return lines + "\n";
}

std::string program_footnote() {
  std::string text = "Examples:\n";
  text += "  halfstep-bench train                        the headline experiment: 20,000 digits, 5 epochs\n";
  text += "  halfstep-bench train --repeat 3 --json -    the same with three seeds, results as JSON\n";
  text += "  halfstep-bench techniques                   every technique alone and together, with intervals\n";
  text += "  halfstep-bench info                         what was built, and which kernels there are\n";
  text += "  halfstep-bench man | man -l -               all commands with all flags, as a page\n";
  text += "  source <(halfstep-bench completion bash)    lets bash complete commands, flags and values\n\n";
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

bool belongs_to(const CommandEntry& entry, std::string_view words) {
  return words.empty() ||
         (entry.words.starts_with(words) && (entry.words.size() == words.size() || entry.words[words.size()] == ' '));
}

// Those that begin with these words, in groups.
std::string list_of(std::span<const CommandEntry> commands, std::string_view words) {
  std::string text;
  for (const CommandEntry& entry : commands) {
    if (!belongs_to(entry, words)) continue;
    if (words.empty() && !entry.group.empty()) text += fmt::format("\n{}:\n", entry.group);
    text += help_line(std::string(entry.words), std::string(entry.summary));
  }
  return text;
}

// `words` are no command. Two words that begin with a command's first name ask for one of its second names.
[[noreturn]] void fail_no_command(std::span<const CommandEntry> commands, const std::vector<std::string>& words) {
  if (words.empty() || is_flag(words[0])) {
    fail(ExitCode::usage, "{}; try {} train, or {} --help",
         words.empty() ? "a command is missing" : words[0] + ": goes after a command", program_name, program_name);
  }
  std::vector<std::string> first, second;
  for (const CommandEntry& entry : commands) {
    const std::string name(entry.words.substr(0, entry.words.find(' ')));
    if (first.empty() || first.back() != name) first.push_back(name);
    if (name == words[0] && name != entry.words) second.emplace_back(entry.words.substr(name.size() + 1));
  }
  if (!second.empty()) {
    const bool is_alone = words.size() == 1 || is_flag(words[1]);
    fail(ExitCode::usage, "{}: {}expected {} and one of {}", words[0],
         is_alone ? "" : fmt::format("{}: unknown; ", words[1]), words[0], fmt::join(second, ", "));
  }
  const std::string meant = nearest(words[0], first);
  const std::string advice =
      meant.empty() ? fmt::format("there are {}", fmt::join(first, ", ")) : fmt::format("did you mean {}?", meant);
  fail(ExitCode::usage, "{}: unknown command; {}", words[0], advice);
}

void run(Command& command, std::string_view name, Flags& flags, const std::vector<std::string>& words) {
  try {
    flags.read(words);
    name_running_command(name);
    command.run(flags);
  } catch (const Error& error) {
    // The library names a setting, "augment shift=x: expected ...", but the user typed a flag.
    std::string message = error.what();
    if (flags.has("--" + message.substr(0, message.find(' ')))) throw error.with_message("--" + message);
    if (error.kind() != ErrorKind::out_of_memory) throw;
    if (flags.has("--accumulate")) message += ", several to a step by --accumulate";
    if (flags.has("--checkpoint")) message += ", or --checkpoint budget=auto";
    throw error.with_message(message);
  }
}

// The command that the first two words name, or the first one, which are taken away.
const CommandEntry* take_command(std::span<const CommandEntry> commands, std::vector<std::string>& words) {
  for (const size_t count : {size_t{2}, size_t{1}}) {
    if (words.size() < count) continue;
    const std::string name = count == 2 ? words[0] + " " + words[1] : words[0];
    const auto entry = std::ranges::find(commands, name, &CommandEntry::words);
    if (entry == commands.end()) continue;
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
    return &*entry;
  }
  return nullptr;
}

// Values, each with what other programs call it.
const std::map<std::string, std::vector<std::string>> other_names = {{"cuda", {"gpu"}},
                                                                     {"f16", {"fp16", "half", "float16"}},
                                                                     {"bf16", {"bfloat16"}},
                                                                     {"f32", {"fp32", "float32", "float"}}};

}  // namespace

std::string quoted(const std::string& word) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+";
  const std::string shown = printable_text(word);
  return shown.find_first_not_of(plain) == std::string::npos ? shown : "'" + shown + "'";
}

std::string words_of(const Json& settings) {
  std::string text;
  for (const auto& [flag, words] : settings.items()) {
    for (const std::string word : words) text += fmt::format(" {} {}", flag, quoted(word));
  }
  return text;
}

// The name of a flag, without dashes.
std::string Flags::meant_by(std::string_view word) const {
  const auto is_known = [word](const Flag& flag) { return std::ranges::count(flag.facts.other_names, word) > 0; };
  const auto known = std::ranges::find_if(flags_, is_known);
  if (known != flags_.end()) return without_dashes(known->name);
  return nearest(word, mapped(flags_, [](const Flag& flag) { return without_dashes(flag.name); }));
}

void Flags::check_no_empty_word() const {
  for (const Flag& flag : flags_) {
    if (std::ranges::find(flag.words, "") != flag.words.end()) {
      fail(ExitCode::usage, "{}: the value is empty", flag.name);
    }
  }
  if (std::ranges::find(given_words_, "") != given_words_.end()) {
    fail(ExitCode::usage, "{}: the value is empty", words_.type);
  }
}

void Flags::split(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!is_flag(words[i])) {
      given_words_.push_back(words[i]);
      continue;
    }
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const auto flag = std::ranges::find(flags_, name, &Flag::name);
    if (flag == flags_.end()) {
      const std::string meant = meant_by(without_dashes(name));
      const std::string advice = meant.empty() ? "" : fmt::format("did you mean --{}? ", meant);
      fail(ExitCode::usage, "{}: unknown flag; {}see {} {} --help", name, advice, program_name, command_);
    }
    if (flag->type.empty()) {
      if (equals != std::string::npos) fail(ExitCode::usage, "{}: takes no value", name);
      flag->words.emplace_back("on");
    } else if (equals != std::string::npos) {
      flag->words.push_back(words[i].substr(equals + 1));
    } else if (i + 1 == words.size() || (words[i + 1].starts_with("--") && flag->type != "FLAGS")) {
      fail(ExitCode::usage, "{}: a value is missing{}", name,
           i + 1 == words.size() ? "" : fmt::format(" before {}", words[i + 1]));
    } else {
      flag->words.push_back(words[++i]);
    }
  }
}

void Flags::read(const std::vector<std::string>& words) {
  split(words);
  check_no_empty_word();  // before one names a file to read
  read_recipe();
  read_saved();
  check_no_empty_word();
  for (const Flag& flag : flags_) {
    if (flag.words.size() > 1 && !flag.repeatable) {
      fail(ExitCode::usage, "{}: given {} times, with {}; give it once", flag.name, flag.words.size(),
           fmt::join(flag.words, " and "));
    }
    for (const std::string& word : flag.words) flag.reader(word);
  }
  for (const Flag& flag : flags_) {
    if (flag.words.empty() || !flag.facts.has_sense || flag.facts.has_sense()) continue;
    fail(ExitCode::usage, "{}{}{}: {}", flag.name, flag.type.empty() ? "" : " ",
         flag.type.empty() ? "" : flag.words.back(), flag.facts.otherwise());
  }
  const size_t count = given_words_.size();
  if (count > words_.high) {
    const std::string& word = given_words_[words_.high];
    std::string meant;  // what people give without its flag
    std::error_code ignored;
    const auto has = [this](const char* name) { return std::ranges::count(flags_, name, &Flag::name) > 0; };
    const bool is_data = std::ranges::count(dataset_names(), word) > 0 || std::filesystem::exists(word, ignored);
    if (has("--data") && is_data) meant = "--data";
    if (has("--model") && (word.ends_with(".safetensors") || std::ranges::count(model_names(), word) > 0))
      meant = "--model";
    fail(ExitCode::usage, "{}: unexpected word; {}see {} {} --help", word,
         meant.empty() ? "" : fmt::format("did you mean {} {}? ", meant, word), program_name, command_);
  }
  if (count < words_.low) {
    fail(ExitCode::usage, "{} {}: {} given, expected {}{}; see {} {} --help", command_, words_.type, count, words_.low,
         words_.high > words_.low ? " or more" : "", program_name, command_);
  }
  if (words_.values != nullptr) *words_.values = given_words_;
}

std::string Flags::help(bool all) const {
  const std::string& type = words_.type;
  std::string text = fmt::format("Usage: {} {} [FLAGS]{}{}\n", program_name, command_, type.empty() ? "" : " ", type);
  if (!type.empty()) text += "\n" + help_line(type, words_.help);
  std::string sections[std::size(group_names)];
  size_t left_out = 0;
  for (const Flag& flag : flags_) {
    if (flag.facts.is_rare && !all && flags_.size() > max_in_help) {
      ++left_out;
    } else {
      sections[static_cast<size_t>(flag.facts.group)] += help_line(flag.name + " " + flag.type, flag.help);
    }
  }
  for (size_t i = 0; i < std::size(sections); ++i) {
    if (!sections[i].empty()) text += fmt::format("\n{}:\n{}", group_names[i], sections[i]);
  }
  if (left_out > 0) text += fmt::format("\n{} more: {} {} --help-all\n", left_out, program_name, command_);
  return text + "\n" + examples_;
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
  for (const auto& [ours, theirs] : other_names) {
    if (std::ranges::count(theirs, word) > 0 && std::ranges::count(words, ours) > 0) return ours;
  }
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
  if (!best.empty() || word.size() < 3) return best;
  const auto within = std::ranges::find_if(words, [&](const auto& other) { return other.find(word) != other.npos; });
  return within == words.end() ? "" : *within;
}

Declared::Declared(const CommandEntry& entry) : command(entry.make()), flags(std::string(entry.words)) {
  command->name_ = entry.words;
  command->declare_all(flags);
}

void run_command_line(std::span<const CommandEntry> commands, int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words == std::vector<std::string>{"--version"}) return write_stdout(version_line());
  if (words == std::vector<std::string>{"man"}) return write_stdout(manual(commands));
  if (words == std::vector<std::string>{"completion", "bash"}) return write_stdout(completion(commands));
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  const bool wants_all = std::ranges::find(words, "--help-all") != words.end();
  const bool wants_help = wants_all || std::ranges::find_first_of(words, std::array{"--help", "-h"}) != words.end();
  if (wants_help && is_flag(words[0])) {
    return write_stdout(fmt::format(
        "Trains small networks with the halfstep engine and reports time, accuracy and memory.\n"
        "Usage: {0} COMMAND [FLAGS]; {0} COMMAND --help, or help COMMAND, for its flags; --version\n{1}\n{2}",
        program_name, list_of(commands, ""), program_footnote()));
  }
  if (wants_help && std::ranges::find(commands, words[0], &CommandEntry::words) == commands.end()) {
    const std::string list = list_of(commands, words[0]);
    if (!list.empty() && is_flag(words[1])) return write_stdout(list);
  }
  const CommandEntry* entry = take_command(commands, words);
  if (entry == nullptr) fail_no_command(commands, words);
  Declared declared(*entry);
  if (!wants_help) return run(*declared.command, entry->words, declared.flags, words);
  write_stdout(fmt::format("{}\n{}", entry->summary, declared.flags.help(wants_all)));
}

}  // namespace hs::bench::cli
