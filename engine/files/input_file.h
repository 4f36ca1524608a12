// A regular file that is open for reading. Every reader uses it, so all refuse folders, FIFOs and devices and
// name the file in the same way. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/non_copyable.h"
#include "engine/printable.h"  // for the messages of readers

struct stat;

namespace hs {

class InputFile : NonCopyable {
 public:
  // Throws Error: io (cannot be opened), bad_input (is not a regular file).
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();

  const std::string& name() const { return name_; }  // printable
  uint64_t size() const { return size_; }            // at opening
  int descriptor() const { return descriptor_; }

  // Reads `count` bytes from `offset` on, fewer only at the end; returns how many. Throws Error (io).
  size_t read_at(uint64_t offset, uint8_t* to, size_t count) const;

 private:
  std::string name_;
  int descriptor_;
  uint64_t size_ = 0;
};

// A file that is to be replaced: it must be none that is read, whatever its name, or what was read would be lost. While
// this is alive, an InputFile that would open it throws Error (usage). Thread safe.
class ReplacedFile : NonCopyable {
 public:
  // Throws Error (usage) if an InputFile of this process has opened it. name: for messages
  ReplacedFile(const struct stat& status, const std::string& name);
  ~ReplacedFile();

 private:
  const uint64_t device_, inode_;
};

// Reads all of a file. Throws Error: io, bad_input (not a regular file, or more than `limit` bytes, none of which
// is then read).
std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t limit);

}  // namespace hs
