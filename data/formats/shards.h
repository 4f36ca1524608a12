// Data sets that are split into files named PREFIX-00000-of-00004 to PREFIX-00003-of-00004.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace hs {

// The operating system limits open files and mappings; this many fit into the usual limits.
inline constexpr int64_t max_shards = 256;

std::filesystem::path shard_path(const std::filesystem::path& prefix, int64_t shard, int64_t shards);

// The files of a set, in order. `path` is the prefix, or one of the files.
// Throws Error: io (no such file), bad_input (one is missing, or there are files of two sets under this prefix).
std::vector<std::filesystem::path> find_shards(const std::filesystem::path& path);

// Whether there is any file of a set with this prefix.
bool has_shards(const std::filesystem::path& prefix);

// Throws Error (usage) unless each of `shards` shards gets a sample, and there are at most max_shards.
void check_shard_count(int64_t shards, int64_t samples);

// The samples of shard `shard`: spread as evenly as possible, the first shards hold one more.
struct ShardRange {
  int64_t first = 0;
  int64_t count = 0;
};
ShardRange shard_range(int64_t shard, int64_t shards, int64_t samples);

}  // namespace hs
