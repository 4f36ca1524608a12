// A file or folder that is made under a temporary name, and removed unless it is renamed: by its owner, or by
// remove_temporary_paths() when a signal ends the program.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace hs {

// The name is random and new: nothing that is there already is opened or followed. Paths beyond the 64 that a table
// for signal handlers holds, or longer than its entries, are removed by their owners alone.
class TemporaryPath {
 public:
  TemporaryPath() = default;  // none
  ~TemporaryPath() { remove(); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  // An empty file in `folder` ("" is the working folder), open for writing; -1 and errno if that fails.
  // REQUIRES of both: path() is empty
  int make_file(const std::filesystem::path& folder);
  // False and errno if that fails.
  bool make_folder(const std::filesystem::path& folder, mode_t mode = 0777);

  const std::filesystem::path& path() const { return path_; }
  // Renames; false and errno if that fails. It is then no longer temporary, and path() is empty.
  bool rename_to(const std::filesystem::path& path);
  // With all that is in it. Nothing if path() is empty.
  void remove() noexcept;

 private:
  void choose(const std::filesystem::path& folder);
  void enter();
  void forget();

  std::filesystem::path path_;
  int entry_ = -1;  // of the table
};

// Removes all in the table; threads that then want a new one wait for the end of the program. May be called from a
// signal handler, and the program must end after it.
void remove_temporary_paths() noexcept;

}  // namespace hs
