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

// An open file that is closed, and removed if it is not kept.
class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags) : path_(path), file_(::open(path.c_str(), O_WRONLY | flags, 0666)) {}
  ~OpenFile() {
    if (file_ < 0) return;
    ::close(file_);
    if (!keep_) ::unlink(path_.c_str());
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return file_ >= 0; }
  void keep() { keep_ = true; }
  void take_mode_of(const fs::path& other) const {
    struct stat status = {};
    if (::stat(other.c_str(), &status) == 0) static_cast<void>(::fchmod(file_, status.st_mode & 0777));
  }
  bool write(std::string_view text) const {
    if (!write_all(file_, text)) return false;
    return ::fsync(file_) == 0 || errno == EINVAL || errno == EROFS;  // pipes and devices have nothing to sync
  }

 private:
  fs::path path_;
  int file_;
  bool keep_ = false;
};

}  // namespace

OutputFile::OutputFile(std::string flag, const std::string& path) : flag_(std::move(flag)), path_(path) {
  if (path.empty() || is_stdout()) return;
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (fs::is_directory(status)) fail(ExitCode::io, "{} {}: is a directory, expected a file", flag_, path);
  if (fs::exists(status)) {
    if (::access(path_.c_str(), W_OK) != 0) fail_io(flag_, path_);
    if (fs::is_regular_file(status)) path_ = fs::canonical(path_);  // the rename replaces the file, not the link
  }
  if (!replaces_file()) return;
  const OpenFile probe(temporary(), O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!probe.is_open()) fail_io(flag_, path_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : flag_(std::move(other.flag_)),
      path_(std::move(other.path_)),
      text_(std::move(other.text_)),
      staged_(std::exchange(other.staged_, false)) {}

OutputFile::~OutputFile() {
  if (staged_) ::unlink(temporary().c_str());
}

bool OutputFile::replaces_file() const {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  return !fs::exists(status) || fs::is_regular_file(status);
}

// One name per flag: the files of a run may be the same but for that.
fs::path OutputFile::temporary() const {
  return path_.parent_path() / fmt::format(".{}-{}{}.tmp", program_name, ::getpid(), flag_);
}

void OutputFile::stage(std::string_view text) {
  if (!is_wanted()) return;
  if (is_stdout() || !replaces_file()) {
    text_ = text;
    return;
  }
  OpenFile file(temporary(), O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!file.is_open()) fail_io(flag_, path_);
  file.take_mode_of(path_);
  if (!file.write(text)) fail_io(flag_, path_);
  file.keep();
  staged_ = true;
}

void OutputFile::publish() {
  if (!is_wanted()) return;
  if (is_stdout()) return write_stdout(text_);
  if (staged_) {
    if (::rename(temporary().c_str(), path_.c_str()) != 0) fail_io(flag_, path_);
    staged_ = false;
    return;
  }
  OpenFile file(path_, 0);
  file.keep();
  if (!file.is_open() || !file.write(text_)) fail_io(flag_, path_);
}

}  // namespace hs::bench
