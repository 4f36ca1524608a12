// Flags that come from a file: a recipe, a record of train, or the state of a run.
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/cli/command_line.h"
#include "bench/cli/environment.h"
#include "engine/check.h"
#include "engine/files/input_file.h"
#include "engine/printable.h"

namespace hs::bench::cli {

// The flags whose members of "config" and of "data" say what a record of train was made with. Those are passed over
// that are at their default, that name something to write or belong to it, and whose effect other members hold: the
// scaled rate is recorded.
Json Flags::recipe_of(const Json& record, const std::string& path) const {
  const Json none = Json::object(), command = record.value("command", Json("a peer"));
  const auto part = [&](const char* name) { return record.contains(name) ? record.at(name) : none; };
  const Json config = part("config"), data = part("data");
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
  Json settings = choice.is_object() ? choice : none;
  settings.update(data);
  settings.update(config);
  Json recipe = none;
  for (const Flag& flag : flags_) {
    if (flag.type.empty() || flag.facts.is_output || !flag.facts.is_from_record || !settings.contains(flag.member))
      continue;
    Json value = settings[flag.member];
    if (value.is_object() && value.contains("file")) value = value["file"];  // of --tuning
    if (value.is_boolean()) value = value == true ? "on" : "off";
    if (!value.is_null() && value != flag.value()) recipe[without_dashes(flag.name)] = value;
  }
  return recipe;
}

namespace {

// A name stands for a recipe that belongs to the program, unless a file is called so.
std::string recipe_file(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (name.find('/') != std::string::npos || name.ends_with(".json") || fs::exists(name, ignored)) return name;
  const fs::path folder = shared_file("recipes"), file = folder / (name + ".json");
  if (fs::exists(file, ignored)) return file;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().stem());
  std::ranges::sort(names);
  fail(ExitCode::usage, "--recipe {}: neither a file nor one of {}", printable_text(name), fmt::join(names, ", "));
}

}  // namespace

// As if the members were flags of the command line.
void Flags::read_recipe() {
  const auto by = std::ranges::find(flags_, "--recipe", &Flag::name);
  if (by == flags_.end() || by->words.empty()) return;
  const std::string path = by->words.back() = recipe_file(by->words.back());
  const std::vector<uint8_t> bytes = read_file(path, JsonLimits::bytes);
  Json recipe = parse(std::string(bytes.begin(), bytes.end()), path);
  if (!recipe.is_object()) fail(ExitCode::bad_input, "{}: a recipe is a JSON object of flags", path);
  if (recipe.contains("schema")) recipe = recipe_of(recipe, path);
  for (const auto& [key, value] : recipe.items()) {
    const auto flag = std::ranges::find(flags_, "--" + key, &Flag::name);
    if (flag == flags_.end() || flag->type.empty() || key == "recipe") {
      const std::string meant = meant_by(key);
      fail(ExitCode::usage, "{}: {}: no flag of {} that takes a value{}", path, printable_text(key), command_,
           meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
    }
    if (flag->facts.is_output || flag->facts.is_code) {
      fail(ExitCode::usage, "{}: {}: a recipe {}; give --{} on the command line", path, key,
           flag->facts.is_output ? "names nothing to write" : "runs no code of its own", key);
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
      if (!flag.words.empty() || flag.facts.is_output || !saved.contains(flag.name)) continue;
      if (flag.facts.is_code) {
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

}  // namespace hs::bench::cli
