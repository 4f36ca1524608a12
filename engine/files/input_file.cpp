#include "engine/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/check.h"

namespace hs {

// O_NONBLOCK: opening a FIFO without a writer must not hang.
InputFile::InputFile(const std::filesystem::path& path)
    : name_(printable(path)), descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(ExitCode::io, "{}: cannot be opened: {}", name_, std::strerror(errno));
  struct stat status;
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    return;
  }
  const int error = errno;
  ::close(descriptor_);  // the destructor of an object that was not constructed does not run
  if (!known) fail(ExitCode::io, "{}: {}", name_, std::strerror(error));
  fail(ExitCode::bad_input, "{}: {}, expected a regular file", name_,
       S_ISDIR(status.st_mode)    ? "a folder"
       : S_ISFIFO(status.st_mode) ? "a FIFO"
                                  : "a device");
}

InputFile::~InputFile() { ::close(descriptor_); }

size_t InputFile::read_at(uint64_t offset, uint8_t* to, size_t count) const {
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor_, to + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ExitCode::io, "{}: cannot be read: {}", name_, std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    fail(ExitCode::bad_input, "{}: {} bytes, above the limit of {} for such a file", file.name(), file.size(), limit);
  }
  std::vector<uint8_t> bytes(file.size());
  bytes.resize(file.read_at(0, bytes.data(), bytes.size()));
  return bytes;
}

}  // namespace hs
