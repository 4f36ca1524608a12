#include "bench/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/console.h"
#include "engine/check.h"

namespace hs::bench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_io(const std::string& flag, const fs::path& path) {
  fail(ExitCode::io, "{} {}: cannot be written: {}", flag, path.string(), std::strerror(errno));
}

// The text and its way to the disk; closes the file. False, and errno, if that fails.
bool write_and_close(int file, std::string_view text) {
  // Pipes and devices have nothing to sync.
  const bool written = write_all(file, text) && (::fsync(file) == 0 || errno == EINVAL || errno == EROFS);
  const int error = errno;
  const bool closed = ::close(file) == 0;
  if (!written) errno = error;
  return written && closed;
}

}  // namespace

OutputFile::OutputFile(std::string flag, const std::string& path) : flag_(std::move(flag)), path_(path) {
  if (path.empty() || is_stdout()) return;
  struct stat status = {};
  if (::stat(path_.c_str(), &status) != 0) {
    if (errno != ENOENT) fail_io(flag_, path_);  // a name that is too long, for one
  } else if (S_ISDIR(status.st_mode)) {
    fail(ExitCode::io, "{} {}: is a directory, expected a file", flag_, path);
  } else if (!S_ISREG(status.st_mode)) {
    stream_ = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (stream_ < 0 && errno == ENXIO && S_ISFIFO(status.st_mode)) {
      fail(ExitCode::io, "{} {}: is a pipe that no program reads; start the reader first", flag_, path);
    }
    if (stream_ < 0 || ::fcntl(stream_, F_SETFL, 0) != 0) fail_io(flag_, path_);
    return;
  } else {
    if (::access(path_.c_str(), W_OK) != 0) fail_io(flag_, path_);
    path_ = fs::canonical(path_);  // the rename replaces the file, not the link
  }
  TemporaryPath probe;
  const int file = probe.make_file(path_.parent_path());
  if (file < 0) fail_io(flag_, path_);
  ::close(file);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : flag_(std::move(other.flag_)),
      path_(std::move(other.path_)),
      text_(std::move(other.text_)),
      staged_(std::move(other.staged_)),
      stream_(std::exchange(other.stream_, -1)) {}

OutputFile::~OutputFile() {
  if (stream_ >= 0) ::close(stream_);
}

void OutputFile::stage(std::string_view text) {
  if (!is_wanted()) return;
  if (is_stdout() || stream_ >= 0) {
    text_ = text;
    return;
  }
  const int file = staged_.make_file(path_.parent_path());
  if (file < 0) fail_io(flag_, path_);
  struct stat status = {};
  if (::stat(path_.c_str(), &status) == 0) static_cast<void>(::fchmod(file, status.st_mode & 0777));
  if (!write_and_close(file, text)) fail_io(flag_, path_);
}

void OutputFile::publish() {
  if (!is_wanted()) return;
  if (is_stdout()) return write_stdout(text_);
  if (stream_ < 0 ? !staged_.rename_to(path_) : !write_and_close(std::exchange(stream_, -1), text_)) {
    fail_io(flag_, path_);
  }
}

}  // namespace hs::bench
