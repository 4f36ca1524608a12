// A file for random access by many threads, mapped into memory: reading needs no system call, which would take several
// times as long as copying a small image. A file larger than `map_limit` is not mapped but read with pread(), so a set
// larger than memory streams without its pages counting as the program's. A mapped file must not be cut while it is in
// use: reading a page that is gone ends the program with SIGBUS. Thread safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/files/input_file.h"

namespace hs {

class MappedFile : NonCopyable {
 public:
  // map_limit: in bytes, 0: a quarter of the machine's memory.
  // Throws Error: io (cannot be opened), bad_input (is not a regular file).
  explicit MappedFile(const std::filesystem::path& path, uint64_t map_limit = 0);
  ~MappedFile();

  const std::string& name() const { return file_.name(); }
  uint64_t size() const { return file_.size(); }

  // REQUIRES: offset + bytes <= size()
  void copy(uint64_t offset, size_t bytes, uint8_t* to) const;

 private:
  InputFile file_;
  const uint8_t* data_ = nullptr;  // null: not mapped
};

}  // namespace hs
