// A file that appears at its path whole or not at all: written under another name in the same folder, brought to the
// disk, then renamed. Destroyed before keep(), it leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/temporary_path.h"

namespace hs {

class OutputFile {
 public:
  // Throws Error (io), as every function here does: with the path, and why.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* bytes, size_t size);
  void write_at(uint64_t offset, const void* bytes, size_t size);
  uint64_t position() const { return position_; }  // bytes written by write()

  void finish();  // all bytes are on the disk; may be called twice
  void keep();    // finish(), then rename
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail_io(const char* what) const;
  void flush();
  void put(uint64_t offset, const void* bytes, size_t size);

  std::filesystem::path path_;
  TemporaryPath temporary_;
  int descriptor_ = -1;
  uint64_t position_ = 0;
  std::string buffer_;  // small writes are collected
};

// Files that belong together: all are finished, then all are renamed. If that fails for one, none stays.
void keep_all(const std::vector<std::unique_ptr<OutputFile>>& files);

// The same for a folder of any number of files: they are written into path(), and keep() brings all of them to the disk
// and gives the folder its name. Throws Error (io), also if there is something at `folder` that is not an empty folder.
class OutputFolder {
 public:
  explicit OutputFolder(const std::filesystem::path& folder);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& path() const { return temporary_.path(); }
  void keep();

 private:
  [[noreturn]] void fail_io(const char* what) const;

  std::filesystem::path folder_;
  TemporaryPath temporary_;
};

// Brings the entries of a folder to the disk: without it, a rename may be lost with the power. Throws Error (io).
void sync_folder(const std::filesystem::path& folder);

}  // namespace hs
