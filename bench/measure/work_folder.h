// A folder for the files that a measurement needs.
#pragma once

#include <filesystem>

#include "data/io/temporary_path.h"

namespace hs::bench::measure {

// In the system's folder for such things, removed with all that is in it.
class WorkFolder {
 public:
  WorkFolder();  // throws Error (io)

  const std::filesystem::path& path() const { return temporary_.path(); }

 private:
  TemporaryPath temporary_;
};

}  // namespace hs::bench::measure
