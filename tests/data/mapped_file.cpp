// Files that are mapped, and files that are too large for it.
#include <doctest/doctest.h>

#include "data/formats/record_file.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

TEST_CASE("a file that is not mapped and shrinks while it is open is an error") {
  for (const bool compress : {false, true}) {
    const TemporaryFolder folder;
    const SampleInfo info = info_for(2000, {16, 16, 1});
    write_all(*write_records(folder / "a", info, {.compress = compress}), info);
    const fs::path path = folder / "a-00000-of-00001";
    const auto source = open_records(path, {.map_limit = 1, .cache_bytes = 1});
    read_image(*source, 0);
    fs::resize_file(path, 4096);
    check_refused(outcome_of([&] { read_image(*source, 1999); }), ExitCode::bad_input, path.string() + ": ",
                  "do not change a file in use (sample 1999)");
  }
}

// Bytes of a file's map that are in this process's memory.
uint64_t resident_bytes_of(const fs::path& path) {
  std::ifstream maps("/proc/self/smaps");
  uint64_t kilobytes = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    const bool head = line.find('-') < line.find(' ') && line.find(' ') != std::string::npos && line[0] != 'R';
    if (head && line.find(" r--s ") != std::string::npos) ours = line.ends_with(path.string());
    if (head && line.find(" r--s ") == std::string::npos) ours = false;
    if (ours && line.starts_with("Rss:")) kilobytes += std::stoull(line.substr(4));
  }
  return kilobytes << 10;
}

TEST_CASE("a set larger than the limit is read without being mapped") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(16384, {64, 64, 1});  // 64 MiB
  write_all(*write_records(folder / "a", info), info);
  const auto resident_after_reading = [&](uint64_t limit) {
    const auto source = open_records(folder / "a", {.map_limit = limit});
    CHECK(first_wrong(*source, info) == -1);
    return resident_bytes_of(folder / "a-00000-of-00001");
  };
  CHECK(resident_after_reading(0) >= 60 * mib);  // the measurement sees the map
  CHECK(resident_after_reading(16 * mib) == 0);
}

}  // namespace
