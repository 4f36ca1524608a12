// Where --json puts its object.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace hs::bench {

using Json = nlohmann::ordered_json;

// null for NaN and infinity, which JSON does not have.
Json finite_or_null(double value);

class JsonFile {
 public:
  // "-" is stdout, an empty path is nowhere. Throws Error (io) if the file could not be written, so that a program
  // knows before its work and not after it.
  explicit JsonFile(const std::string& path);

  bool is_stdout() const { return path_ == "-"; }

  // Whoever reads the path sees the old file or all of the new one: it is written under another name in the same
  // folder and renamed. What is no regular file (a pipe, /dev/null) is written directly. Throws Error (io).
  void write(const Json& object) const;

 private:
  bool replaces_file() const;
  std::filesystem::path temporary() const;

  std::filesystem::path path_;  // symbolic links resolved: the rename replaces the file, not the link
};

}  // namespace hs::bench
