#include "bench/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "bench/console.h"
#include "engine/check.h"

namespace hs::bench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_io(const fs::path& path) {
  fail(ExitCode::io, "--json {}: cannot be written: {}", path.string(), std::strerror(errno));
}

// An open file that is closed, and removed if it is not kept.
class OutputFile {
 public:
  OutputFile(const fs::path& path, int flags) : path_(path), file_(::open(path.c_str(), O_WRONLY | flags, 0666)) {}
  ~OutputFile() {
    if (file_ < 0) return;
    ::close(file_);
    if (!keep_) ::unlink(path_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

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

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

JsonFile::JsonFile(const std::string& path) : path_(path) {
  if (path.empty() || is_stdout()) return;
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (fs::is_directory(status)) fail(ExitCode::io, "--json {}: is a directory, expected a file", path);
  if (fs::exists(status)) {
    if (::access(path_.c_str(), W_OK) != 0) fail_io(path_);
    if (fs::is_regular_file(status)) path_ = fs::canonical(path_);
  }
  if (!replaces_file()) return;
  const OutputFile probe(temporary(), O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!probe.is_open()) fail_io(path_);
}

bool JsonFile::replaces_file() const {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  return !fs::exists(status) || fs::is_regular_file(status);
}

fs::path JsonFile::temporary() const {
  return path_.parent_path() / fmt::format(".{}-{}.tmp", program_name, ::getpid());
}

void JsonFile::write(const Json& object) const {
  if (path_.empty()) return;
  const std::string text = object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (is_stdout()) return write_stdout(text);
  if (!replaces_file()) {
    OutputFile file(path_, 0);
    file.keep();
    if (!file.is_open() || !file.write(text)) fail_io(path_);
    return;
  }
  OutputFile file(temporary(), O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!file.is_open()) fail_io(path_);
  file.take_mode_of(path_);
  if (!file.write(text)) fail_io(path_);
  if (::rename(temporary().c_str(), path_.c_str()) != 0) fail_io(path_);
  file.keep();
}

}  // namespace hs::bench
