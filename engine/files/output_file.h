// A file that appears at its path whole or not at all: a reader of the path sees the old file or all of the new one. It
// is written under another name in the same folder, flushed to disk, then renamed; destroyed before keep(), it leaves
// nothing behind. A file that is a mount point is overwritten instead. Anything but a regular file (stdout, a pipe,
// /dev/null) is opened in the constructor and written in keep().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/files/input_file.h"
#include "engine/non_copyable.h"

namespace hs {

// A file or folder under a temporary name, removed by its owner unless it is renamed, or by remove_temporary_paths()
// when a signal ends the program. The name is random and new: nothing that exists already is opened or followed.
class TemporaryPath : NonCopyable {
 public:
  TemporaryPath() = default;  // none
  ~TemporaryPath() { remove(); }

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

class OutputFile : NonCopyable {
 public:
  // "-" is stdout; to an empty path nothing is written. Messages name the path, after `label` if there is one: what the
  // user named it by, and then it may be none of the files that the program reads (ReplacedFile). Throws Error (io), as
  // every function here does, if the file cannot be written: a program learns it before its work.
  explicit OutputFile(const std::filesystem::path& path, std::string label = {});
  ~OutputFile();

  const std::string& label() const { return label_; }
  const std::filesystem::path& path() const { return path_; }  // if the file exists, without symbolic links
  bool is_wanted() const { return !path_.empty(); }
  bool is_stdout() const { return path_ == "-"; }
  bool is_stream() const { return is_stream_; }  // anything but a regular file

  void write(const void* bytes, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at(uint64_t offset, const void* bytes, size_t size);  // REQUIRES: a regular file
  uint64_t position() const { return position_; }                  // bytes written by write()

  void finish();  // flushes a regular file to disk; may be called twice
  void keep();    // finish(), then rename; throws again what a write has thrown
  // Where the bytes are between finish() and keep(): to read them back. Empty for a stream.
  const std::filesystem::path& unkept_path() const { return temporary_.path(); }

 private:
  [[noreturn]] void fail_io();
  void make_file(TemporaryPath& at);
  void flush();
  void put(uint64_t offset, const void* bytes, size_t size);
  void close();

  const std::string label_;
  std::filesystem::path path_;
  std::string name_;         // for messages
  TemporaryPath temporary_;  // becomes the file; created by the first write
  int descriptor_ = -1;
  bool is_stream_ = false, is_finished_ = false;
  int error_ = 0;  // errno of what has failed: the file is not whole
  std::optional<ReplacedFile> replaced_;
  uint64_t position_ = 0;
  std::string buffer_;  // collects small writes, and all writes to a stream
};

// Keeps files that belong together: finishes all, then renames all. If that fails for one, none remains.
// REQUIRES: regular files
void keep_all(std::deque<OutputFile>& files);

// The same for a folder of any number of files: they are written into path(), and keep() gives the folder its name.
// An empty folder that exists, perhaps the working folder or a mount point, stays, and gets them. Throws Error (io),
// including when there is something at `folder` that is not an empty folder.
class OutputFolder : NonCopyable {
 public:
  explicit OutputFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return temporary_.path(); }
  // wait_for_disk: flushes all files first, so the folder survives a power cut. That may take seconds, and what the
  // program deletes again at its end does not need it.
  void keep(bool wait_for_disk = true);

 private:
  [[noreturn]] void fail_io(const char* what) const;
  void check_empty(std::ptrdiff_t entries) const;
  void move_in();

  std::filesystem::path folder_;
  bool is_there_ = false;
  TemporaryPath temporary_;
};

}  // namespace hs
