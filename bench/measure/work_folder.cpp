#include "bench/measure/work_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "data/formats/image_folder.h"
#include "data/io/sample_writer.h"
#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs::bench::measure {

WorkFolder::WorkFolder() {
  const char* given = std::getenv("TMPDIR");
  const std::filesystem::path folder = given != nullptr && *given != '\0' ? given : "/tmp";
  if (temporary_.make_folder(folder, 0700)) return;
  fail(ExitCode::io, "{}: no temporary folder can be made in it: {}; set TMPDIR", printable(folder),
       std::strerror(errno));
}

std::pair<int64_t, int64_t> files_in(const std::filesystem::path& folder) {
  int64_t files = 0, bytes = 0;
  for (const std::filesystem::directory_entry& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return {files, bytes};
}

SampleFiles::SampleFiles(const SampleSource& train, const SampleSource& test)
    : train_(write(train, "train")), test_(write(test, "test")) {}

std::unique_ptr<SampleSource> SampleFiles::write(const SampleSource& source, const char* part) const {
  const SampleInfo& info = source.info();
  const auto writer = write_image_folder(folder_.path() / part, info,
                                         info.channels == 1 ? ImageFormat::pgm : ImageFormat::png, Lifetime::temporary);
  copy_samples(source, info.count, *writer);
  return open_image_folder(folder_.path() / part, {info.name, info.scale});
}

}  // namespace hs::bench::measure
