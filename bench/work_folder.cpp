#include "bench/work_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/check.h"

namespace hs::bench {

namespace fs = std::filesystem;

WorkFolder::WorkFolder() {
  std::string name = (fs::temp_directory_path() / "halfstep-bench-XXXXXX").string();
  if (!mkdtemp(name.data())) fail(ExitCode::io, "{}: cannot be created: {}; set TMPDIR", name, std::strerror(errno));
  path = name;
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace hs::bench
