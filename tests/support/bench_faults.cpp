#include "tests/support/bench_faults.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace hs::test {
namespace {

// The contents of small files, the sizes of large ones, the types of everything else.
std::map<std::string, std::string> contents(const fs::path& folder) {
  constexpr uintmax_t max_compared = 1 << 20;
  std::map<std::string, std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    std::string& what = found[entry.path().lexically_relative(folder).string()];
    const fs::file_status status = entry.symlink_status();
    if (!fs::is_regular_file(status)) {
      what = "type " + std::to_string(static_cast<int>(status.type()));
    } else if (entry.file_size() > max_compared) {
      what = std::to_string(entry.file_size()) + " bytes";
    } else {
      what = read_text(entry.path());
    }
  }
  return found;
}

}  // namespace

void check_fault(const Fault& fault) {
  CAPTURE(fault.line);
  const TemporaryFolder folder, temporary;
  if (fault.setup) fault.setup(folder.path);
  const auto before = contents(folder.path);
  Surroundings around{.folder = folder.path, .variables = fault.variables};
  around.variables.insert(around.variables.begin(), "TMPDIR=" + temporary.path.string());
  around.prepare = fault.prepare;
  around.patience = 3 * fault.seconds;
  const Ended ended = run_bench_line(fault.line, around);
  CHECK(ended.signal == 0);
  CHECK(contents(folder.path) == before);
  CHECK(temporary.names().empty());
  CHECK(ended.seconds < fault.seconds);
  CHECK((with_address_sanitizer || ended.megabytes < fault.megabytes));
  check_one_line(ended, fault.code, fault.part);
}

void check_faults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) check_fault(fault);
}

}  // namespace hs::test
