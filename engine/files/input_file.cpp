#include "engine/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "engine/check.h"

namespace hs {
namespace {

using FileId = std::pair<uint64_t, uint64_t>;  // device and inode

// Of what this process has read "", and of what it will replace the output's name.
std::map<FileId, std::string> files_in_use;
std::mutex files_mutex;

void use_file(const FileId& id, const std::string& output) {
  const std::scoped_lock lock(files_mutex);
  const auto [file, is_new] = files_in_use.try_emplace(id, output);
  if (is_new || file->second.empty() == output.empty()) return;
  fail(ExitCode::usage, "{}: is a file that is read, and would be replaced; name another one to write",
       output.empty() ? file->second : output);
}

}  // namespace

ReplacedFile::ReplacedFile(const struct stat& status, const std::string& name)
    : device_(status.st_dev), inode_(status.st_ino) {
  use_file({device_, inode_}, name);
}

ReplacedFile::~ReplacedFile() {
  const std::scoped_lock lock(files_mutex);
  files_in_use.erase({device_, inode_});
}

// O_NONBLOCK: opening a FIFO without a writer must not hang.
InputFile::InputFile(const std::filesystem::path& path)
    : name_(printable(path)), descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(ExitCode::io, "{}: cannot be opened: {}", name_, std::strerror(errno));
  struct stat status;
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<uint64_t>(status.st_size);
    try {
      use_file({status.st_dev, status.st_ino}, "");
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
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
