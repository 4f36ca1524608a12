// Folders and files that a measurement needs, removed when it ends.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include "data/io/sample_source.h"
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

// Writes a data set as one image file per sample into a temporary folder, a common form of data sets. "No cache" then
// means what it means elsewhere: a file to open and decode for every sample of every epoch.
class SampleFiles {
 public:
  // Writes PGM, or PNG if there are several channels. Throws Error: io, usage (PNG without libpng).
  SampleFiles(const SampleSource& train, const SampleSource& test);

  const SampleSource& train() const { return *train_; }
  const SampleSource& test() const { return *test_; }

 private:
  std::unique_ptr<SampleSource> write(const SampleSource& source, const char* part) const;

  WorkFolder folder_;  // declared before the sources, whose files it contains
  std::unique_ptr<SampleSource> train_, test_;
};

}  // namespace hs::bench::measure
