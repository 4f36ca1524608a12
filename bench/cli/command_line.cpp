#include "bench/cli/command_line.h"

#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
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

template <class Number>
Flags::Reader number_reader(const std::string& flag, Number& value, Number low, Number high) {
  return [flag, &value, low, high](const std::string& word) {
    const std::optional<Number> number = parsed_number<Number>(word);
    if (!number || !(*number >= low && *number <= high)) {  // so that NaN fails
      constexpr const char* kind = std::is_integral_v<Number> ? "whole number" : "number";
      fail(ExitCode::usage, "{} {}: expected a {} from {} to {}", flag, word, kind, low, high);
    }
    value = *number;
  };
}

// The groups of --help, each with its flags: those that most people use, and after the bar what --help-all adds.
constexpr std::pair<std::string_view, std::string_view> groups[] = {
    {"Model", " --model | --blocks --context --start --lora --lora-alpha "},
    {"Data",
     " --data --train --test --augment | --size --test-split --validation --validate-every --test-every --loader "
     "--prefetch --workers --cache --pin --preprocess "},
    {"Training",
     " --epochs --target --batch --lr --optimizer --schedule --seed --repeat --recipe | --scale-lr --step-every "
     "--step-factor --warmup --momentum --beta2 --weight-decay --decay --clip --skip-outliers --skip-loss-outliers "
     "--ema --label-smoothing --patience --max-minutes --noise-scale --price-per-hour "},
    {"Speed", " --precision --device --threads | --fuse --kernel --plugin --tuning --graph --graph-steps "},
    {"Memory", " --accumulate --checkpoint --memory |"},
    {"Processes", "| --reduce --bucket-kib --halving-kib --wire --rank-timeout "},
    {"Output",
     " --save-model --save --resume --json --html --dry-run --quiet | --csv --md --allow-dirty --save-every "
     "--keep --save-adapters --tensorboard --trace --trace-steps "}};
constexpr size_t most_in_help = 30;  // flags; more are shown by --help-all
constexpr size_t help_column = 28;

// Of a terminal that says how wide it is.
size_t help_width() {
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? std::clamp<size_t>(size.ws_col, 60, 120) : 120;
}

std::string without_dashes(std::string_view word) {
  return std::string(word.substr(std::min(word.find_first_not_of('-'), word.size())));
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

// Flags and values, each with what other programs call it.
constexpr std::string_view meanings =
    ";lr learning-rate;batch batch-size;device gpu cuda;cuda gpu;precision fp16 half float16 amp dtype;accumulate "
    "grad-accum;f16 fp16 half float16;bf16 bfloat16;f32 fp32 float32 float;threads jobs;workers num-workers"
    ";blocks layers depth;context seq-len block-size;weight-decay wd;data dataset;schedule scheduler"
    ";tensorboard logdir;safetensors output;save-model output;";

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

}  // namespace

Flags& Flags::add(const std::string& flag, const std::string& type, const std::string& help, Reader reader, Value value,
                  bool repeatable) {
  std::string member = without_dashes(flag);
  std::ranges::replace(member, '-', '_');
  if (value) members_.emplace_back(member, [this, i = flags_.size()] { return flags_[i].value(); });
  flags_.push_back({flag, type, help, std::move(reader), std::move(value), repeatable, std::move(member)});
  return *this;
}

double as_written(float value) { return std::stod(fmt::format("{}", value)); }

template <class Number>
Flags& Flags::integer(const std::string& flag, Number& value, std::type_identity_t<Number> low,
                      std::type_identity_t<Number> high, const std::string& help) {
  return add(flag, "N", fmt::format("{}, {} to {} (default {})", help, low, high, value),
             number_reader(flag, value, low, high), [&value] { return value; });
}
template Flags& Flags::integer(const std::string&, int64_t&, int64_t, int64_t, const std::string&);
template Flags& Flags::integer(const std::string&, int32_t&, int32_t, int32_t, const std::string&);
template Flags& Flags::integer(const std::string&, uint64_t&, uint64_t, uint64_t, const std::string&);

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

template <class Number>
Flags& Flags::real(const std::string& flag, Number& value, double low, double high, const std::string& help) {
  const auto read = [flag, &value, low, high](const std::string& word) {
    double number = 0;
    number_reader(flag, number, low, high)(word);
    value = static_cast<Number>(number);
  };
  return add(flag, "X", fmt::format("{}, {} to {} (default {})", help, low, high, value), read,
             [&value] { return std::stod(fmt::format("{}", value)); });
}
template Flags& Flags::real(const std::string&, double&, double, double, const std::string&);
template Flags& Flags::real(const std::string&, float&, double, double, const std::string&);

Flags& Flags::choice_of(const std::string& flag, const std::vector<std::string>& names, const Reader& reader,
                        const Value& value, const std::string& help) {
  const auto checked = [flag, names, reader](const std::string& word) {
    if (std::ranges::find(names, word) != names.end()) return reader(word);
    const std::string meant = nearest(word, names);
    fail(ExitCode::usage, "{} {}: expected one of {}{}", flag, word, fmt::join(names, ", "),
         meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
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
  return add(flag, type, help, reader,
             [this, flag, by_default] { return given(flag) ? find(flag)->words.back() : by_default; });
}

Flags& Flags::list(const std::string& flag, std::vector<std::string>& values, const std::string& type,
                   const std::string& help) {
  const auto read = [&values](const std::string& word) { values.push_back(word); };
  const Value written = [&values] { return values; };
  return add(flag, type, help, read, written, true);
}

Flags& Flags::on_off(const std::string& flag, bool& value, const std::string& help) {
  return add(
      flag, "", help, [&value](const std::string&) { value = true; }, nullptr, true);
}

Flags& Flags::words(const std::string& type, std::vector<std::string>& values, size_t low, size_t high,
                    const std::string& help) {
  words_ = {type, help, &values, low, high};
  return *this;
}

Flags& Flags::record(const std::string& member) {
  members_.back().first = member;
  return *this;
}

Flags& Flags::unrecorded() {
  members_.pop_back();
  return *this;
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

const Flags::Flag* Flags::find(std::string_view flag) const {
  const auto found = std::ranges::find(flags_, flag, &Flag::name);
  return found == flags_.end() ? nullptr : &*found;
}

bool Flags::has(std::string_view flag) const { return find(flag) != nullptr; }

bool Flags::given(std::string_view flag) const { return has(flag) && !find(flag)->words.empty(); }

std::vector<std::string> Flags::names() const {
  return mapped(flags_, [](const Flag& flag) { return without_dashes(flag.name); });
}

Flags& Flags::writes() {
  flags_.back().writes = true;
  return unrecorded();
}

Flags& Flags::runs_code() {
  flags_.back().runs_code = true;
  return *this;
}

Flags& Flags::alone(const std::string& word) {
  flags_.back().alone = word;
  return *this;
}

Flags& Flags::continues(std::function<Json(const std::string& value)> saved) {
  flags_.back().saved = std::move(saved);
  return *this;
}

Json Flags::settings(bool that_write) const {
  Json given = Json::object();
  for (const Flag& flag : flags_) {
    if (flag.words.empty() || flag.type.empty() || flag.writes != that_write) continue;
    const bool is_path = flag.type == "FILE" || flag.name == "--data";
    given[flag.name] = is_path && !that_write ? mapped(flag.words, lasting_name) : flag.words;
  }
  return given;
}

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

Flags& Flags::examples(const std::vector<std::string>& lines, const std::string& further) {
  const std::string begin = fmt::format("\n  {} ", program_name);
  examples_ = fmt::format("Examples:{}{}\n\n{}\n", begin, fmt::join(lines, begin), further);
  return *this;
}

Flags& Flags::recipe() {
  const Reader read_already = [](const std::string&) {};
  return text("--recipe", read_already, "", "FILE",
              "Take flags from a JSON file, or from a record of train; those given here count before it");
}

// The flags whose members of "config" and of "data" say what a record of train was made with. Those are passed over
// that are at their default, that name something to write or belong to it, and whose effect other members hold: the
// scaled rate is recorded.
Json Flags::recipe_of(const Json& record, const std::string& path) const {
  const Json none = Json::object(), command = record.value("command", Json("a peer"));
  const auto part = [&](const char* name) { return record.contains(name) ? record.at(name) : none; };
  Json config = part("config"), data = part("data");
  if (!config.is_object() || !data.is_object())
    fail(ExitCode::bad_input, "{}: config and data: expected objects", path);
  if (command != "train") {
    fail(ExitCode::bad_input, "{}: is a record of {}, expected one of train: rows of others have settings of their own",
         path, printable_text(command.is_string() ? command.get<std::string>() : command.dump()));
  }
  if (!config.value("start_sha256", Json()).is_null() && !given("--start")) {
    fail(ExitCode::usage, "{}: its run began with the weights of a model; give --start FILE as well", path);
  }
  if (record.contains("plugins") && !given("--plugin")) {
    fail(ExitCode::usage, "{}: its run had kernels of plug-ins, which its plugins name; give --plugin FILE as well",
         path);
  }
  const Json choice = data.value("choice", Json());
  if (!choice.is_object() && !given("--data"))
    fail(ExitCode::usage, "{}: does not say where its data were; give --data as well", path);
  for (const Json& more : {data, choice.is_object() ? choice : none}) {
    for (const char* name : {"data", "size", "test_split", "train", "test"}) {
      if (more.contains(name)) config[name] = more[name];
    }
  }
  Json recipe = none;
  for (const Flag& flag : flags_) {
    if (flag.type.empty() || flag.writes || !config.contains(flag.member)) continue;
    for (const char* not_taken : {"recipe", "scale_lr", "save_every", "keep"}) {
      if (flag.member == not_taken) config[flag.member] = nullptr;
    }
    Json value = config[flag.member];
    if (value.is_object() && value.contains("file")) value = value["file"];  // of --tuning
    if (value.is_boolean()) value = value == true ? "on" : "off";
    if (!value.is_null() && value != flag.value()) recipe[without_dashes(flag.name)] = value;
  }
  return recipe;
}

// As if the members were flags of the command line.
void Flags::read_recipe() {
  if (!given("--recipe")) return;
  const std::string path = find("--recipe")->words.back();
  const std::vector<uint8_t> bytes = read_file(path, JsonLimits::bytes);
  Json recipe = parse(std::string(bytes.begin(), bytes.end()), path);
  if (!recipe.is_object()) fail(ExitCode::bad_input, "{}: a recipe is a JSON object of flags", path);
  if (recipe.contains("schema")) recipe = recipe_of(recipe, path);
  for (const auto& [key, value] : recipe.items()) {
    const auto flag = std::ranges::find(flags_, "--" + key, &Flag::name);
    if (flag == flags_.end() || flag->type.empty() || key == "recipe") {
      const std::string meant = nearest(key, names());
      fail(ExitCode::usage, "{}: {}: no flag of {} that takes a value{}", path, printable_text(key), command_,
           meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
    }
    if (flag->writes || flag->runs_code) {
      fail(ExitCode::usage, "{}: {}: a recipe {}; give --{} on the command line", path, key,
           flag->writes ? "names nothing to write" : "runs no code of its own", key);
    }
    if (!flag->words.empty()) continue;
    const bool is_number = flag->type == "N" || flag->type == "X";  // or the word auto
    const auto add = [&, &key = key](const Json& word) {
      if (!word.is_string() && !(word.is_number() && is_number)) {
        fail(ExitCode::usage, "{}: {}: expected a string{}{}", path, key, is_number ? " or a number" : "",
             flag->repeatable ? ", or a list of them" : "");
      }
      flag->words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
    };
    if (flag->repeatable && value.is_array()) {
      for (const Json& word : value) add(word);
    } else {
      add(value);
    }
  }
}

void Flags::read_saved() {
  for (const Flag& by : flags_) {
    if (!by.saved || by.words.empty()) continue;
    const Json saved = by.saved(by.words.back());
    for (Flag& flag : flags_) {
      if (!flag.words.empty() || flag.writes || !saved.contains(flag.name)) continue;
      if (flag.runs_code) {
        fail(ExitCode::usage,
             "{} {}: its run had code of its own, which is run only if it is named here; give{} as well", by.name,
             printable_text(by.words.back()), words_of({{flag.name, saved[flag.name]}}));
      }
      for (const Json& word : saved[flag.name]) {
        if (word.is_string()) flag.words.push_back(word.get<std::string>());
      }
    }
  }
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
      const std::string meant = nearest(without_dashes(name), names());
      const std::string advice = meant.empty() ? "" : fmt::format("did you mean --{}? ", meant);
      fail(ExitCode::usage, "{}: unknown flag; {}see {} {} --help", name, advice, program_name, command_);
    }
    if (flag->type.empty()) {
      if (equals != std::string::npos) fail(ExitCode::usage, "{}: takes no value", name);
      flag->words.emplace_back("on");
    } else if (equals != std::string::npos) {
      flag->words.push_back(words[i].substr(equals + 1));
    } else if (i + 1 == words.size() || (words[i + 1].starts_with("--") && flag->type != "FLAGS")) {
      if (!flag->alone.empty()) {
        flag->words.push_back(flag->alone);
        continue;
      }
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
  std::string sections[std::size(groups) + 1];  // the first has the command's own
  size_t left_out = 0;
  for (const Flag& flag : flags_) {
    size_t group = std::size(groups), at = 0;
    while (group > 0 && (at = groups[group - 1].second.find(" " + flag.name + " ")) == std::string_view::npos) --group;
    const bool is_rare = group > 0 && at > groups[group - 1].second.find('|');
    if (is_rare && !all && flags_.size() > most_in_help) {
      ++left_out;
    } else {
      sections[group] +=
          help_line(flag.name + " " + (flag.alone.empty() ? flag.type : "[" + flag.type + "]"), flag.help);
    }
  }
  for (size_t i = 0; i < std::size(sections); ++i) {
    if (sections[i].empty()) continue;
    text += fmt::format("\n{}:\n{}", i == 0 ? "Flags" : groups[i - 1].first, sections[i]);
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
  for (const std::string& ours : words) {
    const size_t row = meanings.find(fmt::format(";{} ", ours)), end = meanings.find(';', row + 1);
    if (row == std::string_view::npos) continue;
    const std::string theirs(meanings.substr(row, end - row));
    if ((theirs + " ").find(fmt::format(" {} ", word)) != std::string::npos) return ours;
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

void run_command_line(std::span<const CommandEntry> commands, int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words == std::vector<std::string>{"--version"}) return write_stdout(version_line());
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
  const std::unique_ptr<Command> command = entry->make();
  command->name_ = entry->words;
  Flags flags{std::string(entry->words)};
  command->declare_all(flags);
  if (!wants_help) return run(*command, entry->words, flags, words);
  write_stdout(fmt::format("{}\n{}", entry->summary, flags.help(wants_all)));
}

}  // namespace hs::bench::cli
