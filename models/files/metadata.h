// Reads the metadata of a file that this program wrote, with messages that name the file. Internal to models/.
#pragma once

#include <string>

#include "engine/check.h"
#include "engine/files/safetensors.h"
#include "engine/parsed_number.h"
#include "engine/printable.h"

namespace hs {

class MetadataReader {
 public:
  // expected: what the file should be, "a model that halfstep saved". Every function throws Error (checkpoint).
  MetadataReader(const SafetensorsFile& file, const char* expected) : file_(file), expected_(expected) {}

  bool has(const std::string& key) const { return file_.metadata().contains(key); }
  const std::string& text(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    if (found != file_.metadata().end()) return found->second;
    fail(ExitCode::checkpoint, "{}: its metadata have no {}, expected {}", file_.name(), key, expected_);
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const {
    fail(ExitCode::checkpoint, "{}: its metadata have the {} {}, expected {}", file_.name(), key,
         printable_text(text(key)), expected);
  }
  template <class Number>
  Number number(const std::string& key, Number low, Number high) const {
    const std::optional<Number> value = parsed_number<Number>(text(key));
    if (value && *value >= low && *value <= high) return *value;
    refuse(key, fmt::format("{} to {}", low, high));
  }

 private:
  const SafetensorsFile& file_;
  const char* const expected_;
};

}  // namespace hs
