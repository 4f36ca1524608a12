// A data set in memory, as files in a temporary folder: an image each, as data sets often come. So that "no cache"
// means what it means elsewhere, a file to open and decode for every sample of every epoch.
#pragma once

#include <filesystem>
#include <memory>

#include "data/sample_source.h"

namespace hs::bench {

class SampleFiles {
 public:
  // Writes PGM, or PNG if there are several channels. Throws Error: io, usage (PNG without libpng).
  SampleFiles(const SampleSource& train, const SampleSource& test);
  ~SampleFiles();  // removes the folder
  SampleFiles(const SampleFiles&) = delete;
  SampleFiles& operator=(const SampleFiles&) = delete;

  const SampleSource& train() const { return *train_; }
  const SampleSource& test() const { return *test_; }

 private:
  std::unique_ptr<SampleSource> write(const SampleSource& source, const char* part) const;

  std::filesystem::path folder_;
  std::unique_ptr<SampleSource> train_, test_;
};

}  // namespace hs::bench
