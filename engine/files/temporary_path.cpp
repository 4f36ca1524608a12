#include "engine/files/temporary_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace hs {
namespace {

// An entry of the table that signal handlers read: memory that is never freed, and lock-free atomics.
struct Entry {
  enum State : int { free, in_change, used };
  std::atomic<int> state = free;
  std::array<char, 4096> path{};
};
std::array<Entry, 64> entries;
std::atomic<bool> is_closed = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// 64 random bits, so no two names are equal; and the begin of whose it is.
std::string random_name(const std::string& whose) {
  uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {  // interrupted while the kernel starts
  }
  return fmt::format(".halfstep-{:016x}{}{}.tmp", number, whose.empty() ? "" : "-", whose.substr(0, 64));
}

constexpr int most_depth = 6;
constexpr int most_passes = 100;

// Calls no function that is not async-signal-safe; getdents64 because readdir() allocates.
void remove_now(int folder, const char* name, int depth) {
  if (::unlinkat(folder, name, 0) == 0 || depth == 0) return;
  if (errno != EISDIR && errno != EPERM) return;
  const int file = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return;
  // Other threads may still add files, and removing while listing may skip some.
  for (int pass = 0; pass < most_passes && ::unlinkat(folder, name, AT_REMOVEDIR) != 0; ++pass) {
    ::lseek(file, 0, SEEK_SET);
    struct Header {  // of linux_dirent64, before the name
      uint64_t inode;
      int64_t offset;
      uint16_t size;
      uint8_t type;
    };
    constexpr size_t name_offset = offsetof(Header, type) + 1;
    alignas(Header) std::array<char, 1024> buffer;
    for (long size; (size = ::syscall(SYS_getdents64, file, buffer.data(), buffer.size())) > 0;) {
      for (long at = 0; at < size;) {
        const char* entry = buffer.data() + at;
        const char* inner = entry + name_offset;
        if (std::strcmp(inner, ".") != 0 && std::strcmp(inner, "..") != 0) remove_now(file, inner, depth - 1);
        uint16_t entry_size = 0;
        std::memcpy(&entry_size, entry + offsetof(Header, size), sizeof entry_size);
        at += entry_size;
      }
    }
  }
  ::close(file);
}

}  // namespace

// Entered in the table before it is created: a signal in between finds nothing to remove.
void TemporaryPath::choose(const std::filesystem::path& folder, const std::string& whose) {
  while (is_closed) ::pause();
  path_ = folder / random_name(whose);
  enter();
}

int TemporaryPath::make_file(const std::filesystem::path& path) {
  choose(path.parent_path(), path.filename());
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) forget();
  return file;
}

bool TemporaryPath::make_folder(const std::filesystem::path& folder, mode_t mode) {
  choose(folder);
  const bool made = ::mkdir(path_.c_str(), mode) == 0;
  if (!made) forget();
  return made;
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

void TemporaryPath::enter() {
  if (path_.native().size() >= entries[0].path.size()) return;
  for (size_t i = 0; i < entries.size(); ++i) {
    int expected = Entry::free;
    if (!entries[i].state.compare_exchange_strong(expected, Entry::in_change)) continue;
    std::memcpy(entries[i].path.data(), path_.c_str(), path_.native().size() + 1);
    entries[i].state = Entry::used;
    entry_ = static_cast<int>(i);
    return;
  }
}

void TemporaryPath::forget() {
  const int error = errno;
  if (entry_ >= 0) entries[static_cast<size_t>(std::exchange(entry_, -1))].state = Entry::free;
  path_.clear();
  errno = error;
}

void remove_temporary_paths() noexcept {
  is_closed = true;
  for (Entry& entry : entries) {
    if (entry.state == Entry::used) remove_now(AT_FDCWD, entry.path.data(), most_depth);
  }
}

}  // namespace hs
