// Where --json puts its object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/output_file.h"

namespace hs::bench {

using Json = nlohmann::ordered_json;

// null for NaN and infinity, which JSON does not have.
Json finite_or_null(double value);
Json finite_or_null(const std::vector<double>& values);

// As --json writes it: two blanks per level, bytes that are not UTF-8 replaced, a newline at the end.
std::string to_text(const Json& object);

class JsonFile {
 public:
  explicit JsonFile(const std::string& path) : path_(path) { static_cast<void>(OutputFile("--json", path)); }

  bool is_stdout() const { return path_ == "-"; }
  void write(const Json& object) const;  // all of it or nothing; throws Error (io)

 private:
  std::string path_;
};

}  // namespace hs::bench
