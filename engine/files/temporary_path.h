// A file or folder that is created under a temporary name, and removed unless it is renamed: by its owner, or by
// remove_temporary_paths() when a signal ends the program.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace hs {

// The name is random and new: nothing that exists already is opened or followed. Signal handlers find up to 64 paths in
// a table; more of them, and paths longer than an entry, are removed only by their owners.
class TemporaryPath {
 public:
  TemporaryPath() = default;  // none
  ~TemporaryPath() { remove(); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  // An empty file beside `path`, whose file name is in its own, open for writing; -1 and errno if that fails.
  // REQUIRES of both: path() is empty
  int make_file(const std::filesystem::path& path);
  // In `folder` ("" is the working folder). False and errno if that fails.
  bool make_folder(const std::filesystem::path& folder, mode_t mode = 0777);

  const std::filesystem::path& path() const { return path_; }
  // Renames; false and errno if that fails. It is then no longer temporary, and path() is empty.
  bool rename_to(const std::filesystem::path& path);
  // Removes it with its contents. Does nothing if path() is empty.
  void remove() noexcept;

 private:
  void choose(const std::filesystem::path& folder, const std::string& whose = {});
  void enter();
  void forget();

  std::filesystem::path path_;
  int entry_ = -1;  // in the table, -1: none
};

// Removes all paths in the table; threads that then need a new one wait for the end of the program. Async-signal-safe.
// The program must end after it.
void remove_temporary_paths() noexcept;

}  // namespace hs
