// A file of results. Whoever reads its path sees the old file or all of the new one: the text is written under another
// name in the same folder, and renamed when every file of the run has got that far.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "data/temporary_path.h"

namespace hs::bench {

class OutputFile {
 public:
  // "-" is stdout, an empty path is nowhere. Throws Error (io), which names the flag, if the file could not be written,
  // so that a program knows before its work and not after it.
  OutputFile(std::string flag, const std::string& path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(OutputFile&&) = delete;

  const std::string& flag() const { return flag_; }
  const std::filesystem::path& path() const { return path_; }  // symbolic links resolved
  bool is_wanted() const { return !path_.empty(); }
  bool is_stdout() const { return path_ == "-"; }

  // What is no regular file (stdout, a pipe, /dev/null) is open from the start and written by publish(). Both throw
  // Error (io).
  void stage(std::string_view text);
  void publish();

 private:
  std::string flag_;
  std::filesystem::path path_;
  std::string text_;      // staged, for what is no regular file
  TemporaryPath staged_;  // as a file under another name
  int stream_ = -1;       // a pipe or a device
};

}  // namespace hs::bench
