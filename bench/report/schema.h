// The schema of records: rules that declare members by path, and the check of a record against them.
#pragma once

#include <span>
#include <string>

#include "bench/cli/json_file.h"

namespace hs::bench::report {

struct Kind {
  const char* expected;  // in words
  bool (*fits)(const Json& value);
  bool may_be_null = false;  // a value that was not measured; names and lists are never null
  bool is_shown = true;      // whether the error message quotes the value
};

namespace kind {

bool is_text(const Json& value);
bool is_amount(const Json& value);
bool is_count(const Json& value);
bool is_share(const Json& value);
bool is_list_of(const Json& list, bool (*fits)(const Json& item), bool or_null);
bool is_object(const Json& value);
bool is_number(const Json& value);

inline constexpr Kind text = {"a text", is_text};
inline constexpr Kind flag = {"true or false", [](const Json& value) { return value.is_boolean(); }};
inline constexpr Kind number = {"a number", is_number};
inline constexpr Kind count = {"a whole number from 0", is_count, true};
inline constexpr Kind amount = {"a number from 0", is_amount, true};
inline constexpr Kind share = {"a number from 0 to 1", is_share, true};
inline constexpr Kind object = {"an object", is_object};
inline constexpr Kind list = {"a list", [](const Json& value) { return value.is_array(); }};
inline constexpr Kind texts = {"a list of texts", [](const Json& value) { return is_list_of(value, is_text, false); }};
inline constexpr Kind numbers = {"a list of numbers",
                                 [](const Json& value) { return is_list_of(value, is_number, true); }};
inline constexpr Kind amounts = {"a list of numbers from 0",
                                 [](const Json& value) { return is_list_of(value, is_amount, true); }};
inline constexpr Kind shares = {"a list of numbers from 0 to 1",
                                [](const Json& value) { return is_list_of(value, is_share, true); }};
inline constexpr Kind objects = {"a list of objects",
                                 [](const Json& value) { return is_list_of(value, is_object, false); }};

}  // namespace kind

// "rows[].parts.*": member names; [] after a list descends into its items, * stands for every member. All members on
// the path except the last must be objects or lists of objects.
struct Rule {
  const char* path;
  const Kind* kind;
  bool required = false;  // in every object that the path reaches
};

// Throws Error (bad_input): "WHERE: seconds is -1, expected a number from 0"; WHERE is `where` and the enclosing items.
void check_rules(const Json& object, std::span<const Rule> rules, const std::string& where);
// The same for lenient readers: any member may be null, and the message names only the member.
void check_types(const Json& object, std::span<const Rule> rules);

// "NAME is VALUE, expected KIND"; a long value is truncated.
std::string complaint(const std::string& name, const Json& value, const Kind& kind);

}  // namespace hs::bench::report
