#include "data/io/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "engine/check.h"
#include "engine/memory_limit.h"

namespace hs {

MappedFile::MappedFile(const std::filesystem::path& path, uint64_t map_limit) : file_(path) {
  if (map_limit == 0) map_limit = static_cast<uint64_t>(memory_limit() / 4);
  if (size() == 0 || size() > map_limit) return;
  void* address = ::mmap(nullptr, size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (address == MAP_FAILED) fail(ExitCode::io, "{}: cannot be mapped: {}", name(), std::strerror(errno));
  data_ = static_cast<const uint8_t*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size());
}

void MappedFile::copy(uint64_t offset, size_t bytes, uint8_t* to) const {
  check(offset <= size() && bytes <= size() - offset, "{}: bytes {} to {} of {}", name(), offset, offset + bytes,
        size());
  if (data_ != nullptr) {
    std::memcpy(to, data_ + offset, bytes);
  } else if (file_.read_at(offset, to, bytes) != bytes) {
    fail(ExitCode::bad_input, "{}: ends before byte {} now; do not change a file in use", name(), offset + bytes);
  }
}

}  // namespace hs
