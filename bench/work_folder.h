// A folder for the files that a measurement needs.
#pragma once

#include <filesystem>

namespace hs::bench {

// In the system's folder for such things, removed with all that is in it.
class WorkFolder {
 public:
  WorkFolder();  // throws Error (io)
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace hs::bench
