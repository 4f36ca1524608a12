// A fresh folder for one test, removed with its contents, and texts in files.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "engine/non_copyable.h"

namespace hs::test {

namespace fs = std::filesystem;

// A place in memory if the system has one, for tests that write thousands of files.
inline fs::path fast_place() {
  const fs::path memory = "/dev/shm";
  return fs::is_directory(memory) ? memory : fs::temp_directory_path();
}

class TemporaryFolder : NonCopyable {
 public:
  explicit TemporaryFolder(const fs::path& place = fs::temp_directory_path()) {
    std::string pattern = (place / "halfstep-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~TemporaryFolder() { fs::remove_all(path); }

  fs::path operator/(const std::string& name) const { return path / name; }

  // The names of its entries.
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path)) all.insert(entry.path().filename().string());
    return all;
  }

  fs::path path;
};

inline std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Makes the folder too.
inline void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace hs::test
