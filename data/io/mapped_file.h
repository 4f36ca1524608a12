// A file for random access by many threads, mapped into memory: reading needs no system call, which would take several
// times as long as copying a small image. No pointer into the mapping leaves this class: bytes are copied out, so
// whatever happens to the file is handled here. A file larger than `map_limit` is not mapped but read with pread(), so
// a set larger than memory streams without its pages counting as the program's. Thread safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/files/input_file.h"

namespace hs {

class MappedFile {
 public:
  // map_limit: in bytes, 0: a quarter of the machine's memory.
  // Throws Error: io (cannot be opened), bad_input (is not a regular file).
  explicit MappedFile(const std::filesystem::path& path, uint64_t map_limit = 0);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& name() const { return file_.name(); }
  uint64_t size() const { return file_.size(); }

  // Both throw Error (bad_input) if the file is no longer what it was when it was opened: immediately if the page is
  // gone, within a few milliseconds if the file was written to or truncated inside the page (that is how often its size
  // and time stamp are compared). REQUIRES: offset + bytes <= size()
  void copy(uint64_t offset, size_t bytes, uint8_t* to) const;
  uint32_t checksum(uint64_t offset, size_t bytes) const;  // CRC32C

 private:
  void check_unchanged() const;

  InputFile file_;
  const uint8_t* data_ = nullptr;  // null: not mapped
  timespec modified_{};
  mutable std::atomic<int64_t> checked_at_{0};  // the time of the last check_unchanged(), in ticks of the coarse clock
};

}  // namespace hs
