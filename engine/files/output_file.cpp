#include "engine/files/output_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/check.h"
#include "engine/printable.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

constexpr size_t buffer_bytes = 1 << 16;

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Some file systems have nothing to flush to a disk.
bool reaches_disk(int descriptor) { return ::fsync(descriptor) == 0 || errno == EINVAL || errno == EROFS; }
bool all_reaches_disk(int descriptor) { return ::syncfs(descriptor) == 0; }

// Flushes a file, or a folder's entries, without which a power failure may undo a rename; or, by all_reaches_disk, all
// files on its file system: one wait instead of one for each of thousands of files.
void sync_path(const fs::path& path, bool (*sync)(int) = reaches_disk) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && sync(descriptor);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) fail(ExitCode::io, "{}: cannot be brought to the disk: {}", printable(path), std::strerror(error));
}

std::array<std::atomic<const char*>, 64> paths;
static_assert(std::atomic<const char*>::is_always_lock_free);  // a signal handler reads it
std::atomic<bool> all_removed = false;                         // the program ends: nothing may be created any more

}  // namespace

// Entered in the table before it is created: a signal in between finds nothing to remove.
void TemporaryPath::choose(const std::filesystem::path& folder, const std::string& whose) {
  remove();
  uint64_t number = 0;                                               // 64 random bits, so no two names are equal
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {  // interrupted while the kernel starts
  }
  path_ = folder / fmt::format(".halfstep-{:016x}{}{}.tmp", number, whose.empty() ? "" : "-", whose.substr(0, 64));
  for (std::atomic<const char*>& entry : paths) {
    const char* none = nullptr;
    if (!entry.compare_exchange_strong(none, path_.c_str())) continue;
    entry_ = &entry;
    return;
  }
}

int TemporaryPath::make_file(const std::filesystem::path& path) {
  choose(path.parent_path(), path.filename());
  errno = EINTR;
  if (all_removed) return -1;
  return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool TemporaryPath::make_folder(const std::filesystem::path& folder, mode_t mode) {
  choose(folder, "");
  errno = EINTR;
  return !all_removed && ::mkdir(path_.c_str(), mode) == 0;
}

bool TemporaryPath::rename_to(const std::filesystem::path& path) {
  if (::rename(path_.c_str(), path.c_str()) != 0) return false;
  forget();
  return true;
}

void TemporaryPath::remove() noexcept {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  forget();
}

void TemporaryPath::forget() {
  if (entry_ != nullptr) *std::exchange(entry_, nullptr) = nullptr;
  path_.clear();
}

void remove_temporary_paths() noexcept {
  all_removed = true;
  for (const std::atomic<const char*>& entry : paths) {
    const char* path = entry;
    if (path == nullptr || ::unlink(path) == 0 || errno == ENOENT) continue;
    const pid_t child = ::_Fork();
    if (child == 0) {
      ::execl("/bin/rm", "rm", "-rf", "--", path, nullptr);
      ::_exit(1);
    }
    if (child > 0) ::waitpid(child, nullptr, 0);
  }
}

OutputFile::OutputFile(const fs::path& path, std::string label) : label_(std::move(label)), path_(path) {
  name_ = is_stdout() ? "stdout" : (label_.empty() ? "" : label_ + " ") + printable(path);
  if (!is_wanted()) return;
  struct stat status = {};
  const bool is_there = !is_stdout() && ::stat(path_.c_str(), &status) == 0;
  if (!is_there && !is_stdout() && errno != ENOENT) fail_io();  // for example, a name that is too long
  if (is_there && S_ISDIR(status.st_mode)) fail(ExitCode::io, "{}: is a directory, expected a file", name_);
  is_stream_ = is_stdout() || (is_there && !S_ISREG(status.st_mode));
  if (is_stream_) {
    descriptor_ = is_stdout() ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                              : ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor_ < 0 && errno == ENXIO && S_ISFIFO(status.st_mode)) {
      fail(ExitCode::io, "{}: is a pipe that no program reads; start the reader first", name_);
    }
    if (descriptor_ < 0 || (!is_stdout() && ::fcntl(descriptor_, F_SETFL, 0) != 0)) fail_io();
    return;
  }
  if (is_there && ::access(path_.c_str(), W_OK) != 0) fail_io();
  if (is_there) path_ = fs::canonical(path_);  // the rename replaces the file, not the link
  TemporaryPath probe;                         // fails now; the first write may come hours later
  make_file(probe);
  close();
  if (is_there && !label_.empty()) replaced_.emplace(status, name_);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::fail_io() {
  error_ = errno;
  fail(ExitCode::io, "{}: cannot be written: {}", name_, std::strerror(errno));
}

// The new file gets the permissions of the file that it replaces.
void OutputFile::make_file(TemporaryPath& at) {
  descriptor_ = at.make_file(path_);
  if (descriptor_ < 0) fail_io();
  struct stat status = {};
  if (::stat(path_.c_str(), &status) == 0) static_cast<void>(::fchmod(descriptor_, status.st_mode & 0777));
}

void OutputFile::write(const void* bytes, size_t size) {
  if (!is_wanted()) return;
  buffer_.append(static_cast<const char*>(bytes), size);
  position_ += size;
  if (!is_stream_ && buffer_.size() >= buffer_bytes) flush();
}

void OutputFile::flush() {
  if (descriptor_ < 0) make_file(temporary_);
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
    const ssize_t written =
        is_stream_ ? ::write(descriptor_, at, size) : ::pwrite(descriptor_, at, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io();
    at += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
}

// Some file systems report a full disk here.
void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_io();
}

void OutputFile::finish() {
  if (!is_wanted() || is_stream_ || is_finished_) return;
  flush();
  if (!reaches_disk(descriptor_)) fail_io();
  close();
  is_finished_ = true;
}

void OutputFile::keep() {
  if (!is_wanted()) return;
  errno = error_;
  if (error_ != 0) fail_io();
  finish();
  if (is_stream_) {
    flush();
    close();
  } else if (!temporary_.rename_to(path_)) {
    // A file that is mounted, as into a container, cannot be replaced. A reader may see a part of it.
    if (errno != EBUSY) fail_io();
    std::error_code error;
    fs::copy_file(temporary_.path(), path_, fs::copy_options::overwrite_existing, error);
    if (error) fail(ExitCode::io, "{}: cannot be written: {}", name_, error.message());
    sync_path(path_);
    temporary_.remove();
  }
  replaced_.reset();
}

void keep_all(std::deque<OutputFile>& files) {
  for (OutputFile& file : files) file.finish();
  size_t kept = 0;
  try {
    for (; kept < files.size(); ++kept) files[kept].keep();
    for (const OutputFile& file : files) sync_path(folder_of(file.path()));
  } catch (const Error&) {
    for (size_t i = 0; i < kept; ++i) ::unlink(files[i].path().c_str());
    throw;
  }
}

OutputFolder::OutputFolder(const fs::path& folder) : folder_(folder) {
  std::error_code ignored;
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "a/b/"
  is_there_ = fs::exists(folder_, ignored);
  if (is_there_) check_empty(0);
  struct stat status = {};
  if (::lstat(folder_.c_str(), &status) != 0 && errno != ENOENT) fail_io("cannot be made");
  if (!temporary_.make_folder(is_there_ ? folder_ : folder_of(folder_))) fail_io("cannot be made");
}

void OutputFolder::check_empty(std::ptrdiff_t entries) const {
  std::error_code error;
  if (std::distance(fs::directory_iterator(folder_, error), {}) == entries && !error) return;
  fail(ExitCode::io, "{}: is there already; remove it or choose another place", printable(folder_));
}

// All or, if that fails, none.
void OutputFolder::move_in() {
  check_empty(1);  // the temporary folder
  std::vector<fs::path> moved;
  for (const fs::path& from : std::vector<fs::path>(fs::directory_iterator(path()), {})) {
    moved.push_back(folder_ / from.filename());
    if (::rename(from.c_str(), moved.back().c_str()) == 0) continue;
    const int error = errno;
    std::error_code ignored;
    for (const fs::path& each : moved) fs::remove_all(each, ignored);
    errno = error;
    fail_io("cannot be given what was written");
  }
  temporary_.remove();
}

void OutputFolder::fail_io(const char* what) const {
  fail(ExitCode::io, "{}: {}: {}", printable(folder_), what, std::strerror(errno));
}

void OutputFolder::keep(bool wait_for_disk) {
  if (wait_for_disk) sync_path(path(), all_reaches_disk);
  if (is_there_) {
    move_in();
  } else if (!temporary_.rename_to(folder_)) {
    fail_io("cannot be given to what was written");
  }
  if (wait_for_disk) sync_path(is_there_ ? folder_ : folder_of(folder_));
}

}  // namespace hs
