#include "bench/measure/work_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "data/io/input_file.h"
#include "engine/check.h"

namespace hs::bench::measure {

WorkFolder::WorkFolder() {
  const char* given = std::getenv("TMPDIR");
  const std::filesystem::path folder = given != nullptr && *given != '\0' ? given : "/tmp";
  if (temporary_.make_folder(folder, 0700)) return;
  fail(ExitCode::io, "{}: no temporary folder can be made in it: {}; set TMPDIR", printable(folder),
       std::strerror(errno));
}

}  // namespace hs::bench::measure
