// A folder for files that a measurement needs, removed when it ends, and sets of samples written into folders.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include "bench/cli/environment.h"
#include "data/formats/image_folder.h"
#include "data/open_dataset.h"
#include "engine/files/output_file.h"

namespace hs::bench::measure {

// In $TMPDIR or /tmp.
class WorkFolder {
 public:
  WorkFolder() { cli::make_temporary(temporary_); }

  const std::filesystem::path& path() const { return temporary_.path(); }

 private:
  TemporaryPath temporary_;
};

// The number of regular files in the folder and below, and their total bytes.
std::pair<int64_t, int64_t> files_in(const std::filesystem::path& folder);

// How the files of a set are written.
struct SetFormat {
  std::string format;                       // record, tfrecord, idx, png, jpeg or pgm
  int64_t shards = 1;                       // of record and tfrecord
  bool compress = false;                    // of record
  Lifetime lifetime = Lifetime::permanent;  // of images
};
// Writes a split of a set into a folder, from which find_dataset() opens it. Throws as the format's own function.
std::unique_ptr<SampleWriter> write_split(const SetFormat& as, const std::filesystem::path& folder, Part part,
                                          const SampleInfo& info);

}  // namespace hs::bench::measure
