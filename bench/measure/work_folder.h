// A folder for files that a measurement needs, removed when it ends.
#pragma once

#include <filesystem>
#include <utility>

#include "engine/files/output_file.h"

namespace hs::bench::measure {

// In $TMPDIR or /tmp.
class WorkFolder {
 public:
  WorkFolder();  // throws Error (io)

  const std::filesystem::path& path() const { return temporary_.path(); }

 private:
  TemporaryPath temporary_;
};

// The number of regular files in the folder and below, and their total bytes.
std::pair<int64_t, int64_t> files_in(const std::filesystem::path& folder);

}  // namespace hs::bench::measure
