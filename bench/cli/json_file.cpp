#include "bench/cli/json_file.h"

#include <cmath>
#include <set>

#include "engine/check.h"
#include "engine/printable.h"

namespace hs::bench {
namespace {

// Checks the limits without storing anything. (A callback of Json::parse() would see the same, but then the parser
// scans a whole list after each of its items.)
class Limits : public nlohmann::json_sax<Json> {
 public:
  Limits(const std::string& source, size_t bytes) : source_(source), bytes_(bytes) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return begin(); }
  bool start_array(size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (!members_.back().insert(name).second)
      fail(ExitCode::bad_input, "{}: the member {:.40} is there twice", source_, printable_text(name));
    if (members_.back().size() <= JsonLimits::members) return true;
    fail(ExitCode::bad_input, "{}: an object has more than {} members", source_, JsonLimits::members);
  }
  bool parse_error(size_t byte, const std::string& token, const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {
      fail(ExitCode::bad_input, "{}: the number {:.40} is too large", source_, token);
    }
    fail(ExitCode::bad_input, "{}: is not JSON, at byte {} of {}", source_, byte, bytes_);
  }

 private:
  bool begin() {
    members_.emplace_back();
    if (members_.size() <= JsonLimits::depth) return true;
    fail(ExitCode::bad_input, "{}: lists and objects are nested more than {} deep", source_, JsonLimits::depth);
  }
  bool end() {
    members_.pop_back();
    return true;
  }

  const std::string& source_;
  const size_t bytes_;
  std::vector<std::set<std::string>> members_;  // so far, in each open list and object
};

constexpr size_t max_on_a_line = 8;  // members of an object that is not broken
constexpr size_t line_width = 120;

// A list of scalars of any length, a small object of scalars, or an object of nothing but one of these.
bool is_one_line(const Json& value) {
  if (value.is_object() && value.size() > max_on_a_line) return false;
  if (value.is_object() && value.size() == 1) return is_one_line(*value.begin());
  return std::ranges::none_of(value, [](const Json& element) { return element.is_structured(); });
}

void append(const Json& value, size_t indent, std::string& text) {
  const auto scalar = [](const Json& one) { return one.dump(-1, ' ', true, Json::error_handler_t::replace); };
  if (!value.is_structured()) {
    text += scalar(value);
    return;
  }
  const bool one_line = indent > 0 && is_one_line(value);
  // The items of a list that is broken, and the members of the record, have lines of their own.
  const size_t width = one_line ? std::string::npos : indent > 0 && value.is_object() ? line_width : 0;
  size_t column = one_line ? 0 : width;
  std::string line_end;
  if (!one_line) line_end.append(1, '\n').append(indent, ' ');
  text += value.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& [name, member] : value.items()) {
    std::string item = value.is_object() ? scalar(name) + ": " : "";
    append(member, indent + 2, item);
    const bool is_broken = item.find('\n') != std::string::npos;
    const bool fits = !is_broken && column + item.size() + 2 <= width;
    if (!first) text += ',';
    if (!fits) text += line_end + "  ";
    if (fits && !first) text += ' ';
    text += item;
    first = false;
    column = is_broken ? width : (fits ? column : indent + 1) + item.size() + 2;
  }
  if (!value.empty()) text += line_end;
  text += value.is_object() ? '}' : ']';
}

}  // namespace

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json finite_or_null(const std::vector<double>& values) {
  return mapped(values, [](double value) { return finite_or_null(value); });
}

std::string to_text(const Json& object) {
  std::string text;
  append(object, 0, text);
  return text + "\n";
}

Json parse(std::string_view text, const std::string& source) {
  Limits limits(source, text.size());
  // The parser takes a NUL for the end.
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    fail(ExitCode::bad_input, "{}: is not JSON, at byte {} of {}", source, at + 1, text.size());
  Json::sax_parse(text, &limits);
  return Json::parse(text);
}

}  // namespace hs::bench
