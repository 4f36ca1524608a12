#include "bench/report/schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "engine/check.h"

namespace hs::bench::report {
namespace {

// The name of an item of this list: "row 'mlp'", "an epoch".
std::string item_name(std::string_view list, const Json& item) {
  static const std::map<std::string_view, const char*> names = {
      {"rows", "row '{}'"}, {"tables", "table '{}'"}, {"runs", "a run"}, {"epochs", "an epoch"}};
  const auto found = names.find(list);
  if (found == names.end()) return std::string(list);
  const Json name = item.is_object() ? item.value(list == "tables" ? "title" : "name", Json()) : Json();
  return fmt::format(fmt::runtime(found->second),
                     name.is_string() ? fmt::format("{:.40}", name.get_ref<const std::string&>()) : "");
}

// Follows one rule along its path. Without `where`, behaves as check_types().
class Follower {
 public:
  Follower(const Rule& rule, const std::string* where) : rule_(rule), where_(where) {}

  void follow(const Json& object, std::string_view path, const std::string& where) const {
    const size_t dot = path.find('.');
    const Step step = {std::string(path.substr(0, dot)),
                       dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1)};
    if (step.name == "*") {
      for (const auto& [name, value] : object.items()) visit({name, step.rest}, value, where);
      return;
    }
    const bool is_list = step.name.ends_with("[]");
    const auto found = object.find(is_list ? step.name.substr(0, step.name.size() - 2) : step.name);
    if (found != object.end()) return visit(step, *found, where);
    if (step.rest.empty() && rule_.required) fail(ExitCode::bad_input, "{}: {} is missing", where, step.name);
  }

 private:
  struct Step {
    std::string name;
    std::string_view rest;  // of the path; empty at the end
  };

  [[noreturn]] void refuse_at(const std::string& where, const std::string& name, const Json& value,
                              const Kind& kind) const {
    fail(ExitCode::bad_input, "{}{}{}", where, where_ ? ": " : "", complaint(name, value, kind));
  }

  void visit(const Step& step, const Json& value, const std::string& where) const {
    if (value.is_null() && (!where_ || rule_.kind->may_be_null || !step.rest.empty())) return;
    if (step.rest.empty()) {
      if (!rule_.kind->fits(value)) refuse_at(where, step.name, value, *rule_.kind);
    } else if (!step.name.ends_with("[]")) {
      if (!value.is_object()) refuse_at(where, step.name, value, kind::object);
      follow(value, step.rest, where_ ? fmt::format("{}: {}", where, step.name) : where);
    } else {
      visit_items(step, value, where);
    }
  }

  void visit_items(const Step& step, const Json& list, const std::string& where) const {
    const std::string name = step.name.substr(0, step.name.size() - 2);
    if (!list.is_array() || (!where_ && !kind::objects.fits(list))) refuse_at(where, name, list, kind::objects);
    for (const Json& item : list) {
      std::string place = where;
      if (where_) place += fmt::format("{} {}", &where == where_ ? ":" : ",", item_name(name, item));
      if (!item.is_object()) fail(ExitCode::bad_input, "{}: is not an object", place);
      follow(item, step.rest, place);
    }
  }

  const Rule& rule_;
  const std::string* where_;
};

}  // namespace

namespace kind {

bool is_text(const Json& value) { return value.is_string(); }
bool is_object(const Json& value) { return value.is_object(); }
bool is_number(const Json& value) { return value.is_number(); }
bool is_amount(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()) && value >= 0; }
bool is_count(const Json& value) { return value.is_number_integer() && value >= 0; }
bool is_share(const Json& value) { return is_amount(value) && value <= 1; }
bool is_list_of(const Json& list, bool (*fits)(const Json& item), bool or_null) {
  return list.is_array() &&
         std::ranges::all_of(list, [&](const Json& item) { return fits(item) || (or_null && item.is_null()); });
}

}  // namespace kind

void check_rules(const Json& object, std::span<const Rule> rules, const std::string& where) {
  for (const Rule& rule : rules) Follower(rule, &where).follow(object, rule.path, where);
}

void check_types(const Json& object, std::span<const Rule> rules) {
  for (const Rule& rule : rules) Follower(rule, nullptr).follow(object, rule.path, "");
}

std::string complaint(const std::string& name, const Json& value, const Kind& kind) {
  if (!kind.is_shown) return fmt::format("{}: expected {}", name, kind.expected);
  const std::string found = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return fmt::format("{} is {}, expected {}", name, found.substr(0, 40), kind.expected);
}

}  // namespace hs::bench::report
