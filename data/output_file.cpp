#include "data/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "data/input_file.h"
#include "engine/check.h"

namespace hs {
namespace {

constexpr size_t buffer_bytes = 1 << 20;

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  struct stat status = {};
  // A name that is too long, for one, is noticed now and not by the rename.
  if (::lstat(path_.c_str(), &status) != 0 && errno != ENOENT) fail_io("cannot be written");
  descriptor_ = temporary_.make_file(folder_of(path));
  if (descriptor_ < 0) fail_io("cannot be written");
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::fail_io(const char* what) const {
  fail(ExitCode::io, "{}: {}: {}", printable(path_), what, std::strerror(errno));
}

void OutputFile::write(const void* bytes, size_t size) {
  buffer_.append(static_cast<const char*>(bytes), size);
  position_ += size;
  if (buffer_.size() >= buffer_bytes) flush();
}

void OutputFile::flush() {
  const std::string bytes = std::exchange(buffer_, {});
  put(position_ - bytes.size(), bytes.data(), bytes.size());
}

void OutputFile::write_at(uint64_t offset, const void* bytes, size_t size) {
  flush();
  put(offset, bytes, size);
}

void OutputFile::put(uint64_t offset, const void* bytes, size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor_, at, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("cannot be written");
    at += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
}

void OutputFile::finish() {
  if (descriptor_ < 0) return;
  flush();
  if (::fsync(descriptor_) != 0) fail_io("cannot be brought to the disk");
  // Some file systems report a full disk here.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_io("cannot be closed");
}

void OutputFile::keep() {
  finish();
  if (!temporary_.rename_to(path_)) fail_io("cannot be renamed to this");
}

void keep_all(const std::vector<std::unique_ptr<OutputFile>>& files) {
  for (const auto& file : files) file->finish();
  size_t kept = 0;
  try {
    for (; kept < files.size(); ++kept) files[kept]->keep();
    for (const auto& file : files) sync_folder(folder_of(file->path()));
  } catch (const Error&) {
    for (size_t i = 0; i < kept; ++i) ::unlink(files[i]->path().c_str());
    throw;
  }
}

OutputFolder::OutputFolder(const std::filesystem::path& folder) : folder_(folder) {
  std::error_code ignored;
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "a/b/"
  if (std::filesystem::exists(folder_, ignored) && !std::filesystem::is_empty(folder_, ignored)) {
    fail(ExitCode::io, "{}: is there already; remove it or choose another place", printable(folder_));
  }
  struct stat status = {};
  if (::lstat(folder_.c_str(), &status) != 0 && errno != ENOENT) fail_io("cannot be made");
  if (!temporary_.make_folder(folder_of(folder_))) fail_io("cannot be made");
}

void OutputFolder::fail_io(const char* what) const {
  fail(ExitCode::io, "{}: {}: {}", printable(folder_), what, std::strerror(errno));
}

// One wait for everything on the file system instead of one for each of thousands of files.
void OutputFolder::keep() {
  const int descriptor = ::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_io("cannot be opened");
  const int status = ::syncfs(descriptor);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  if (status != 0) fail_io("cannot be brought to the disk");
  if (!temporary_.rename_to(folder_)) fail_io("cannot be given to what was written");
  sync_folder(folder_of(folder_));
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && (::fsync(descriptor) == 0 || errno == EINVAL || errno == EROFS);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) fail(ExitCode::io, "{}: cannot be brought to the disk: {}", printable(folder), std::strerror(error));
}

}  // namespace hs
