#include "data/formats/shards.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

struct Suffix {
  unsigned shard, shards;
};

// The suffix after the prefix: "-00001-of-00004".
std::optional<Suffix> parse_suffix(const std::string& text) {
  Suffix suffix{};
  const bool has_numbers = std::sscanf(text.c_str(), "-%5u-of-%5u", &suffix.shard, &suffix.shards) == 2;
  if (!has_numbers || shard_path({}, suffix.shard, suffix.shards) != text) return {};  // sscanf() takes other spellings
  return suffix;
}

constexpr size_t suffix_size = 15;

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// The suffixes of all files with this prefix.
std::vector<Suffix> suffixes_of(const fs::path& prefix) {
  std::vector<Suffix> found;
  const std::string name = prefix.filename().string();
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(prefix), error), end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (!file.starts_with(name)) continue;
    if (const auto suffix = parse_suffix(file.substr(name.size()))) found.push_back(*suffix);
  }
  return found;
}

}  // namespace

fs::path shard_path(const fs::path& prefix, int64_t shard, int64_t shards) {
  fs::path path = prefix;
  path += fmt::format("-{:05}-of-{:05}", shard, shards);
  return path;
}

bool has_shards(const fs::path& prefix) { return !suffixes_of(prefix).empty(); }

std::vector<fs::path> find_shards(const fs::path& path) {
  fs::path prefix = path;
  const std::string name = path.filename().string();
  if (name.size() > suffix_size && parse_suffix(name.substr(name.size() - suffix_size))) {
    prefix.replace_filename(name.substr(0, name.size() - suffix_size));
  }
  std::vector<Suffix> found = suffixes_of(prefix);
  if (found.empty()) {
    fail(ExitCode::io, "{}: not found, expected files like {}", printable(path),
         printable(shard_path(prefix, 0, 1).filename()));
  }
  const unsigned shards = found.front().shards;
  for (const Suffix& other : found) {
    if (other.shards == shards) continue;
    fail(ExitCode::bad_input, "{}: there are shards of two sets here, of {} and of {} files; remove one of them",
         printable(prefix), std::min(shards, other.shards), std::max(shards, other.shards));
  }
  if (shards < 1 || shards > max_shards) {
    fail(ExitCode::bad_input, "{}: a set of {} shards, expected 1 to {}", printable(prefix), shards, max_shards);
  }
  std::ranges::sort(found, {}, &Suffix::shard);
  if (const int64_t last = found.back().shard; last >= shards) {
    fail(ExitCode::bad_input, "{}: its name says shard {} of {}, expected 0 to {}",
         printable(shard_path(prefix, last, shards)), last, shards, shards - 1);
  }
  std::vector<fs::path> files;
  for (int64_t shard = 0; shard < shards; ++shard) {
    files.push_back(shard_path(prefix, shard, shards));
    if (!std::ranges::binary_search(found, shard, {}, &Suffix::shard)) {
      fail(ExitCode::bad_input, "{}: missing, and {} of the {} shards are here; copy it too, or convert the set again",
           printable(files.back()), found.size(), shards);
    }
  }
  return files;
}

void check_shard_count(int64_t shards, int64_t samples) {
  const int64_t most = std::min(max_shards, samples);
  if (shards >= 1 && shards <= most) return;
  fail(ExitCode::usage, "{} shards of {} samples: expected 1 to {}", shards, samples, most);
}

ShardRange shard_range(int64_t shard, int64_t shards, int64_t samples) {
  const int64_t each = samples / shards, more = samples % shards;
  return {shard * each + std::min(shard, more), each + (shard < more ? 1 : 0)};
}

}  // namespace hs
