#include "bench/measure/work_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

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

}  // namespace hs::bench::measure
