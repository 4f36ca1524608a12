// How flags are declared, and what is asked about them.
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/cli/command_line.h"
#include "bench/cli/environment.h"
#include "engine/check.h"
#include "engine/printable.h"

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

}  // namespace

std::string Flags::without_dashes(std::string_view word) {
  return std::string(word.substr(std::min(word.find_first_not_of('-'), word.size())));
}

Flags& Flags::add(const std::string& flag, const Facts& facts, const std::string& type, const std::string& help,
                  Reader reader, Value value, bool repeatable) {
  std::string member = without_dashes(flag);
  std::ranges::replace(member, '-', '_');
  if (value && facts.is_recorded) {
    members_.emplace_back(member, [this, i = flags_.size()] {
      const auto& counts = flags_[i].facts.counts;
      return !counts || counts() ? flags_[i].value() : Json(nullptr);
    });
  }
  flags_.push_back({flag, facts, type, help, std::move(reader), std::move(value), repeatable, std::move(member)});
  return *this;
}

template <class Number>
Flags& Flags::integer(const std::string& flag, const Facts& facts, Number& value, std::type_identity_t<Number> low,
                      std::type_identity_t<Number> high, const std::string& help) {
  return add(flag, facts, "N", fmt::format("{}, {} to {} (default {})", help, low, high, value),
             number_reader(flag, value, low, high), [&value] { return value; });
}
template Flags& Flags::integer(const std::string&, const Facts&, int64_t&, int64_t, int64_t, const std::string&);
template Flags& Flags::integer(const std::string&, const Facts&, int32_t&, int32_t, int32_t, const std::string&);
template Flags& Flags::integer(const std::string&, const Facts&, uint64_t&, uint64_t, uint64_t, const std::string&);

Flags& Flags::integer_or_auto(const std::string& flag, const Facts& facts, int64_t& value, int64_t automatic,
                              int64_t low, int64_t high, const std::string& help) {
  const auto read = [&value, automatic, number = number_reader(flag, value, low, high)](const std::string& word) {
    if (word == "auto") {
      value = automatic;
    } else {
      number(word);
    }
  };
  const Value written = [&value, automatic] { return value == automatic ? Json("auto") : Json(value); };
  const std::string by_default = value == automatic ? "auto" : std::to_string(value);
  return add(flag, facts, "N", fmt::format("{}, {} to {} or auto (default {})", help, low, high, by_default), read,
             written);
}

template <class Number>
Flags& Flags::real(const std::string& flag, const Facts& facts, Number& value, double low, double high,
                   const std::string& help) {
  const auto read = [flag, &value, low, high](const std::string& word) {
    double number = 0;
    number_reader(flag, number, low, high)(word);
    value = static_cast<Number>(number);
  };
  return add(flag, facts, "X", fmt::format("{}, {} to {} (default {})", help, low, high, value), read,
             [&value] { return std::stod(fmt::format("{}", value)); });
}
template Flags& Flags::real(const std::string&, const Facts&, double&, double, double, const std::string&);
template Flags& Flags::real(const std::string&, const Facts&, float&, double, double, const std::string&);

Flags& Flags::choice_of(const std::string& flag, const Facts& facts, const std::vector<std::string>& names,
                        const Reader& reader, const Value& value, const std::string& help) {
  const auto checked = [flag, names, reader](const std::string& word) {
    if (std::ranges::find(names, word) != names.end()) return reader(word);
    const std::string meant = nearest(word, names);
    fail(ExitCode::usage, "{} {}: expected one of {}{}", flag, word, fmt::join(names, ", "),
         meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
  };
  const auto by_default = value().get<std::string>();
  add(flag, facts, "NAME", fmt::format("{}: {} (default {})", help, fmt::join(names, ", "), by_default), checked,
      value);
  flags_.back().choices = names;
  return *this;
}

Flags& Flags::choice(const std::string& flag, const Facts& facts, std::string& value,
                     const std::vector<std::string>& names, const std::string& help) {
  const auto read = [&value](const std::string& word) { value = word; };
  const Value written = [&value] { return value; };
  return choice_of(flag, facts, names, read, written, help);
}

Flags& Flags::text(const std::string& flag, const Facts& facts, std::string& value, const std::string& type,
                   const std::string& help) {
  const auto read = [&value](const std::string& word) { value = word; };
  const Value written = [&value] { return value; };
  return add(flag, facts, type, help, read, written);
}

Flags& Flags::text(const std::string& flag, const Facts& facts, const Reader& reader, const std::string& by_default,
                   const std::string& type, const std::string& help) {
  return add(flag, facts, type, help, reader,
             [this, flag, by_default] { return given(flag) ? find(flag)->words.back() : by_default; });
}

Flags& Flags::list(const std::string& flag, const Facts& facts, std::vector<std::string>& values,
                   const std::string& type, const std::string& help) {
  const auto read = [&values](const std::string& word) { values.push_back(word); };
  const Value written = [&values] { return values; };
  return add(flag, facts, type, help, read, written, true);
}

Flags& Flags::on_off(const std::string& flag, const Facts& facts, bool& value, const std::string& help) {
  return add(
      flag, facts, "", help, [&value](const std::string&) { value = true; }, nullptr, true);
}

Flags& Flags::words(const std::string& type, std::vector<std::string>& values, size_t low, size_t high,
                    const std::string& help) {
  words_ = {type, help, &values, low, high};
  return *this;
}

Flags& Flags::record(const std::string& member) {
  flags_.back().member = member.substr(member.rfind('/') + 1);
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

Json Flags::settings(bool that_write) const {
  Json given = Json::object();
  for (const Flag& flag : flags_) {
    if (flag.words.empty() || flag.type.empty() || flag.facts.is_output != that_write) continue;
    const bool is_path = flag.type == "FILE" || flag.name == "--data";
    given[flag.name] = is_path && !that_write ? mapped(flag.words, lasting_name) : flag.words;
  }
  return given;
}

Flags& Flags::examples(const std::vector<std::string>& lines, const std::string& further) {
  const std::string begin = fmt::format("\n  {} ", program_name);
  examples_ = fmt::format("Examples:{}{}\n\n{}\n", begin, fmt::join(lines, begin), further);
  return *this;
}

Flags& Flags::recipe() {
  const Reader read_already = [](const std::string&) {};
  return text("--recipe", common(Group::training).keeps_bits().not_from_record(), read_already, "", "FILE",
              "Take flags from a JSON file, a record of train, or a recipe of the program by its name, as mnist_99; "
              "those given here count before it");
}

double as_written(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace hs::bench::cli
