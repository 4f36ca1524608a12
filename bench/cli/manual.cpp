// The page for `man` and the completion of bash: the table that --help prints, as other programs read it.
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/environment.h"

namespace hs::bench::cli {
namespace {

using Texts = std::vector<std::string>;

// As roff takes it: none of its characters means anything, and '-' stays the one that can be searched for and copied.
std::string roff(std::string_view text) {
  constexpr std::pair<char, const char*> special[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                                                      {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
  std::string plain;
  for (const char c : text) {
    if (c == '.' && (plain.empty() || plain.back() == '\n')) plain += "\\&";
    const auto* const found = std::ranges::find(special, c, &std::pair<char, const char*>::first);
    found == std::end(special) ? plain.push_back(c) : void(plain += found->second);
  }
  return plain;
}

std::string item(const std::string& what, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", what, roff(text));
}

}  // namespace

std::string Flags::man_section() const {
  std::string text = fmt::format(".PP\n\\fB{} {}\\fR [FLAGS]{}{}\n", roff(program_name), command_,
                                 words_.type.empty() ? "" : " ", roff(words_.type));
  if (!words_.type.empty()) text += item(fmt::format("\\fI{}\\fR", roff(words_.type)), words_.help);
  for (const Flag& flag : flags_) {
    text += item(fmt::format("\\fB{}\\fR \\fI{}\\fR", roff(flag.name), roff(flag.type)), flag.help);
  }
  return text + fmt::format(".PP\n.nf\n{}.fi\n", roff(examples_));
}

std::string manual(std::span<const CommandEntry> commands) {
  std::string text = fmt::format(
      ".TH HALFSTEP\\-BENCH 1 \"\" \"halfstep {0}\"\n.SH NAME\n{1} \\- train small networks, and measure every "
      "technique "
      "of doing it\n.SH SYNOPSIS\n\\fB{1}\\fR \\fICOMMAND\\fR [FLAGS]\n.SH COMMANDS\n",
      build_info.version, roff(program_name));
  for (const CommandEntry& entry : commands) {
    text += fmt::format(".SS {}\n{}\n{}", entry.words, roff(entry.summary), Declared(entry).flags.man_section());
  }
  text += ".SH EXIT STATUS\n";
  for (const ExitCodeRow& row : exit_code_table) text += item(std::to_string(static_cast<int>(row.code)), row.meaning);
  return text;
}

// Files are completed where this leaves no word: after a flag without choices, and where words are no flags.
std::string Flags::completion_case() const {
  Texts names, others;
  std::string choices;
  for (const Flag& flag : flags_) {
    names.push_back(flag.name);
    if (!flag.choices.empty()) {
      choices += fmt::format("          {}) words='{}' ;;\n", flag.name, fmt::join(flag.choices, " "));
    } else if (!flag.type.empty()) {
      others.push_back(flag.name);
    }
  }
  if (!others.empty()) choices += fmt::format("          {}) words= ;;\n", fmt::join(others, " | "));
  return fmt::format("      '{}')\n        words='{}'\n{}        case $before in\n{}        esac ;;\n", command_,
                     fmt::join(names, " "), words_.type.empty() ? "" : "        [[ $word == -* ]] || words=\n",
                     choices);
}

std::string completion(std::span<const CommandEntry> commands) {
  Texts first, pairs;
  std::string second, cases;
  for (const CommandEntry& entry : commands) {
    cases += Declared(entry).flags.completion_case();
    const size_t space = entry.words.find(' ');
    const std::string_view name = entry.words.substr(0, space);
    if (first.empty() || first.back() != name) first.emplace_back(name);
    if (space == entry.words.npos) continue;
    pairs.push_back(fmt::format("'{}'", entry.words));
    second +=
        fmt::format("    [[ $COMP_CWORD$command != 2{} ]] || words+=' {}'\n", name, entry.words.substr(space + 1));
  }
  return fmt::format(R"(# Completion for bash, by: {0} completion bash
_halfstep_bench() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} words=
  [[ $word != = ]] || word=
  [[ $before != = ]] || before=${{COMP_WORDS[COMP_CWORD - 2]}}
  if ((COMP_CWORD == 1)); then
    words='{1} help'
  else
    case "$command ${{COMP_WORDS[2]}}" in
      {2}) ((COMP_CWORD == 2)) || command+=" ${{COMP_WORDS[2]}}" ;;
    esac
    case $command in
{3}      help) words='{1}' ;;
    esac
{4}  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _halfstep_bench {0}
)",
                     program_name, fmt::join(first, " "), fmt::join(pairs, " | "), cases, second);
}

}  // namespace hs::bench::cli
