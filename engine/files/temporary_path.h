// A file or folder that is created under a temporary name, and removed unless it is renamed: by its owner, or by
// remove_temporary_paths() when a signal ends the program.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <filesystem>

namespace hs {

// The name is random and new: nothing that exists already is opened or followed.
class TemporaryPath {
 public:
  TemporaryPath() = default;  // none
  ~TemporaryPath() { remove(); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  // An empty file beside `path`, whose file name is in its own, open for writing; -1 and errno if that fails.
  int make_file(const std::filesystem::path& path);
  // In `folder` ("" is the working folder). False and errno if that fails.
  bool make_folder(const std::filesystem::path& folder, mode_t mode = 0777);

  const std::filesystem::path& path() const { return path_; }
  // Renames; false and errno if that fails. It is then no longer temporary, and path() is empty.
  bool rename_to(const std::filesystem::path& path);
  // Removes it with its contents. Does nothing if path() is empty.
  void remove() noexcept;

 private:
  void choose(const std::filesystem::path& folder, const std::string& whose);
  void forget();

  std::filesystem::path path_;
  std::atomic<const char*>* entry_ = nullptr;  // in the table of remove_temporary_paths()
};

// Removes up to 64 paths that there are, folders by the program rm. Async-signal-safe; the program must end after it.
void remove_temporary_paths() noexcept;

}  // namespace hs
