// The files of a set that is cut into shards: found by their names, in order, or refused.
#include "data/formats/shards.h"
#include "tests/support/bad_input.h"

namespace {

using namespace hs;
using namespace hs::test;

TEST_CASE("shards: found by the prefix or by one of the files, whatever lies beside them") {
  const TemporaryFolder folder;
  for (const char* name :
       {"a-00001-of-00003", "a-00002-of-00003", "a-00000-of-00003", "ab-00000-of-00002", "a", "a-1"}) {
    write_bytes(folder / name, {});
  }
  const std::vector<std::filesystem::path> expected = {folder / "a-00000-of-00003", folder / "a-00001-of-00003",
                                                       folder / "a-00002-of-00003"};
  CHECK(find_shards(folder / "a") == expected);
  CHECK(find_shards(folder / "a-00001-of-00003") == expected);
  CHECK(has_shards(folder / "a"));
  CHECK(!has_shards(folder / "a-0"));
}

TEST_CASE("shards: missing, of two sets, and numbers that cannot be") {
  struct Row {
    std::vector<std::string> names;
    ExitCode code;
    const char* part;
  };
  const Row rows[] = {
      {{}, ExitCode::io, "a: not found"},
      {{"ab-00000-of-00001", "a-00001-of-2", "a-0000x-of-00001"}, ExitCode::io, "a: not found"},
      {{"a-00001-of-00003", "a-00002-of-00003"}, ExitCode::bad_input, "a-00000-of-00003: missing, and 2 of the 3"},
      {{"a-00000-of-00003", "a-00002-of-00003"}, ExitCode::bad_input, "a-00001-of-00003: missing, and 2 of the 3"},
      {{"a-00000-of-00003", "a-00001-of-00003"}, ExitCode::bad_input, "a-00002-of-00003: missing, and 2 of the 3"},
      {{"a-00000-of-00001", "a-00000-of-00002", "a-00001-of-00002"},
       ExitCode::bad_input,
       "two sets here, of 1 and of 2"},
      {{"a-00000-of-00000"}, ExitCode::bad_input, "a set of 0 shards"},
      {{"a-00000-of-00300"}, ExitCode::bad_input, "a set of 300 shards, expected 1 to 256"},
      {{"a-00002-of-00002"}, ExitCode::bad_input, "its name says shard 2 of 2"},
  };
  for (const auto& [names, code, part] : rows) {
    const TemporaryFolder folder;
    for (const std::string& name : names) write_bytes(folder / name, {});
    check_refused(outcome_of([&] { find_shards(folder / "a"); }), code, folder.path.string(), part);
  }
  CHECK(outcome_of([] { find_shards("/nonexistent/a"); }).code == ExitCode::io);
}

TEST_CASE("shards: samples are spread evenly") {
  for (const int64_t samples : {1, 5, 10, 257}) {
    for (int64_t shards = 1; shards <= std::min(samples, max_shards); ++shards) {
      int64_t first = 0;
      for (int64_t shard = 0; shard < shards; ++shard) {
        const ShardRange range = shard_range(shard, shards, samples);
        CHECK(range.first == first);
        CHECK((range.count == samples / shards || range.count == samples / shards + 1));
        first += range.count;
      }
      CHECK(first == samples);
    }
    CHECK(outcome_of([&] { check_shard_count(std::min(samples, max_shards) + 1, samples); }).code == ExitCode::usage);
    CHECK(outcome_of([&] { check_shard_count(0, samples); }).code == ExitCode::usage);
  }
}

}  // namespace
