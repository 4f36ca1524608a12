// Trainings in processes of their own, by this program's `train`: for commands that compare whole configurations.
#include <limits>

#include "bench/cli/child.h"
#include "bench/commands/commands.h"

namespace hs::bench::commands {
namespace {

using Words = std::vector<std::string>;

// As a shell does, at spaces that are not within quotes.
Words split(const std::string& line) {
  Words words;
  char quote = 0;
  bool in_word = false;
  for (const char c : line) {
    if (quote == 0 && c == ' ') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) fail(ExitCode::usage, "--run \"{}\": a quote has no end", line);
  return words;
}

}  // namespace

TrainFlags::TrainFlags() : Flags("train"), train_(make_train_command()) { train_->declare_all(*this); }

Json train_settings(const std::string& line) {
  const Words words = split(line);
  for (const std::string& word : words) {
    for (const char* flag : {"--repeat", "--seed", "--resume", "--dry-run"}) {
      if (word.substr(0, word.find('=')) != flag) continue;
      fail(ExitCode::usage, "--run \"{}\": leave {} out: runs are repeated from outside", line, flag);
    }
  }
  TrainFlags flags;
  try {
    flags.read(words);
  } catch (const Error& error) {
    throw error.with_message(fmt::format("--run \"{}\": {}", line, error.what()));
  }
  const Json writes = flags.settings(true);
  if (!writes.empty()) {
    fail(ExitCode::usage, "--run \"{}\": {} writes a file of each run; leave it out", line, writes.begin().key());
  }
  Json settings = flags.settings();
  for (const char* flag : {"--repeat", "--seed"}) settings.erase(flag);  // of a recipe
  return settings;
}

Json train_once(const Json& settings, uint64_t seed) {
  Words words = {std::filesystem::read_symlink("/proc/self/exe"), "train", "--repeat", "1", "--quiet", "--json", "-"};
  words.insert(words.end(), {"--seed", std::to_string(seed)});
  for (const auto& [flag, values] : settings.items()) {
    for (const std::string value : values) words.insert(words.end(), {flag, value});
  }
  const cli::ChildEnd end =
      cli::run_program(words, std::numeric_limits<double>::infinity(), "while training; no results were written");
  const std::string what = "train" + cli::words_of(settings);
  const bool missed = end.code == static_cast<int>(ExitCode::missed) && !end.out.empty();  // a target, with a record
  if (end.signal != 0) fail(ExitCode::io, "{}: {}", what, end.text());
  if (end.code != 0 && !missed) fail(static_cast<ExitCode>(end.code), "{}: {}", what, end.last_words);
  Json record = parse(end.out, what);
  report::check_record(record, what);
  return record;
}

}  // namespace hs::bench::commands
