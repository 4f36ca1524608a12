// A file mapped into memory, for random access by many threads without a system call. Nobody gets a pointer into the
// map: bytes are copied out, or summed up, so that whatever happens to the file stays inside this class.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/io/input_file.h"

namespace hs {

class MappedFile {
 public:
  // resident_limit: pages of the file that this process holds in its memory at a time; 0: a quarter of the machine's.
  // A larger file is streamed: when that much was touched, all of it is given back (the pages stay in the system's
  // cache as long as there is room).
  // Throws Error: io (cannot be opened), bad_input (is not a regular file).
  explicit MappedFile(const std::filesystem::path& path, uint64_t resident_limit = 0);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& name() const { return file_.name(); }
  uint64_t size() const { return file_.size(); }

  // Both throw Error (bad_input) if the file is no longer what it was when it was opened: at once if the page is gone,
  // within a few milliseconds if the file was written to or cut inside the page (its size and time are looked at that
  // often).
  // REQUIRES: offset + bytes <= size()
  void copy(uint64_t offset, size_t bytes, uint8_t* to) const;
  uint32_t checksum(uint64_t offset, size_t bytes) const;  // CRC32C

 private:
  // action(address) runs with the bytes in reach; a failing read of them becomes an Error.
  template <class Action>
  void with_bytes(uint64_t offset, size_t bytes, const Action& action) const;
  void check_unchanged() const;
  void count_touched(uint64_t offset, size_t bytes) const;

  InputFile file_;
  const uint8_t* data_ = nullptr;
  timespec modified_{};
  uint64_t resident_limit_;
  mutable std::atomic<int64_t> looked_at_{0};        // when the time stamp was, in ticks of the coarse clock
  std::unique_ptr<std::atomic<uint8_t>[]> touched_;  // by piece of the file; null if the file is below the limit
  mutable std::atomic<uint64_t> touched_bytes_{0};
};

}  // namespace hs
