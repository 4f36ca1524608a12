#include "tests/support/bench_faults.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/support/temporary_folder.h"

namespace hs::test {
namespace {

namespace fs = std::filesystem;

// The contents of small files, the sizes of large ones, the types of everything else.
std::map<std::string, std::string> contents(const fs::path& folder) {
  constexpr uintmax_t most_compared = 1 << 20;
  std::map<std::string, std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    std::string& what = found[entry.path().lexically_relative(folder).string()];
    const fs::file_status status = entry.symlink_status();
    if (!fs::is_regular_file(status)) {
      what = "type " + std::to_string(static_cast<int>(status.type()));
    } else if (entry.file_size() > most_compared) {
      what = std::to_string(entry.file_size()) + " bytes";
    } else {
      what = read_text(entry.path());
    }
  }
  return found;
}

std::string names(const std::map<std::string, std::string>& contents) {
  std::string all;
  for (const auto& [name, what] : contents) all += name + " ";
  return all;
}

}  // namespace

void check_fault(const Fault& fault) {
  CAPTURE(fault.name);
  if (fault.arguments[0] == "peers" && !has_python3()) return;
  const TemporaryFolder folder, temporary;
  if (fault.setup) fault.setup(folder.path);
  const auto before = contents(folder.path);
  Surroundings around{.folder = folder.path, .variables = fault.variables};
  around.variables.insert(around.variables.begin(), "TMPDIR=" + temporary.path.string());
  around.prepare = fault.prepare;
  around.patience = 3 * fault.seconds;
  const Ended ended = run_bench(fault.arguments, around);
  CHECK(ended.signal == 0);
  const auto after = contents(folder.path), left = contents(temporary.path);
  CHECK(names(after) == names(before));
  CHECK(after == before);
  CHECK(names(left) == "");
  CHECK(ended.seconds < fault.seconds);
  CHECK(ended.megabytes < fault.megabytes);
  check_one_line(ended, fault.exit_code, fault.line);
}

}  // namespace hs::test
