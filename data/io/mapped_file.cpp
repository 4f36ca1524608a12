#include "data/io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "data/io/bus_error_guard.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"

namespace hs {
namespace {

uint64_t quarter_of_memory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 4;
}

// Advances every few milliseconds, and is read in a few nanoseconds.
int64_t coarse_ticks() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, uint64_t map_limit) : file_(path) {
  struct stat status;
  if (::fstat(file_.descriptor(), &status) != 0) fail(ExitCode::io, "{}: {}", name(), std::strerror(errno));
  modified_ = status.st_mtim;
  if (size() == 0 || size() > (map_limit == 0 ? quarter_of_memory() : map_limit)) return;
  install_bus_error_guard();
  void* address = ::mmap(nullptr, size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (address == MAP_FAILED) fail(ExitCode::io, "{}: cannot be mapped: {}", name(), std::strerror(errno));
  data_ = static_cast<const uint8_t*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size());
}

void MappedFile::check_unchanged() const {
  const int64_t now = coarse_ticks();
  if (checked_at_.load(std::memory_order_relaxed) == now) return;
  struct stat status;
  if (::fstat(file_.descriptor(), &status) != 0) fail(ExitCode::io, "{}: {}", name(), std::strerror(errno));
  const auto found = static_cast<uint64_t>(status.st_size);
  if (found != size()) {
    fail(ExitCode::bad_input, "{}: had {} bytes when it was opened and has {} now; do not change a file in use", name(),
         size(), found);
  }
  if (status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec) {
    fail(ExitCode::bad_input, "{}: was written to since it was opened; do not change a file in use", name());
  }
  checked_at_.store(now, std::memory_order_relaxed);
}

void MappedFile::copy(uint64_t offset, size_t bytes, uint8_t* to) const {
  check(offset <= size() && bytes <= size() - offset, "{}: bytes {} to {} of {}", name(), offset, offset + bytes,
        size());
  if (bytes == 0) return;
  // Loads the first bytes during the check. A prefetch ignores a missing page.
  constexpr size_t prefetched_bytes = 1024;
  for (size_t at = 0; data_ != nullptr && at < std::min(bytes, prefetched_bytes); at += 64) {
    __builtin_prefetch(data_ + offset + at);
  }
  check_unchanged();
  if (data_ != nullptr ? copy_guarded(to, data_ + offset, bytes) : file_.read_at(offset, to, bytes) == bytes) return;
  checked_at_ = 0;
  check_unchanged();  // says what happened, if the size did change
  fail(ExitCode::bad_input, "{}: bytes {} to {} cannot be read; the disk is damaged, or the file was cut and restored",
       name(), offset, offset + bytes);
}

uint32_t MappedFile::checksum(uint64_t offset, size_t bytes) const {
  std::array<uint8_t, 1 << 14> part;
  uint32_t sum = 0;
  for (size_t done = 0; done < bytes;) {
    const size_t size = std::min(bytes - done, part.size());
    copy(offset + done, size, part.data());
    sum = crc32c(part.data(), size, sum);
    done += size;
  }
  return sum;
}

}  // namespace hs
