#include "engine/files/temporary_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

namespace hs {
namespace {

std::array<std::atomic<const char*>, 64> paths;
static_assert(std::atomic<const char*>::is_always_lock_free);  // a signal handler reads it

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
  return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool TemporaryPath::make_folder(const std::filesystem::path& folder, mode_t mode) {
  choose(folder, "");
  return ::mkdir(path_.c_str(), mode) == 0;
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

}  // namespace hs
