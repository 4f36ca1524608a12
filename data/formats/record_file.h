// Record files: halfstep's own format for images of one size. A header, then the pixels as they are in memory, page
// aligned, then checksums and labels (docs/data_formats.md has every byte), cut into shards
// PREFIX-00000-of-00004. Mapped into memory, sample i is one copy from a known place: no index to search, no text to
// parse, no file to open. Each block's CRC32C is checked when a sample of it is read for the first time. A set larger
// than memory streams: its files are read, not mapped, and the decompressed blocks that are kept are bounded.
#pragma once

#include <filesystem>
#include <memory>

#include "data/io/sample_source.h"
#include "data/io/sample_writer.h"

namespace hs {

// How open_records() reads.
struct RecordReadOptions {
  uint64_t map_limit = 0;                    // bytes of the set; a larger one is not mapped; 0: a quarter of memory
  uint64_t cache_bytes = uint64_t{1} << 26;  // decompressed blocks that are kept
};

// `path`: the prefix, or one of the shards.
// Throws Error: io (no such files, or they cannot be read), bad_input (damaged, missing or mixed shards).
std::unique_ptr<SampleSource> open_records(const std::filesystem::path& path, const RecordReadOptions& options = {});

// How write_records() writes.
struct RecordWriteOptions {
  int64_t shards = 1;             // number of files, 1 to 256
  bool compress = false;          // zlib, block by block: reading a sample decompresses its block
  int64_t samples_per_block = 0;  // 0: as many as fit into 64 KiB
};

// Writes info.count samples. Throws Error: usage (more shards than samples, or than 256), io.
std::unique_ptr<SampleWriter> write_records(const std::filesystem::path& prefix, const SampleInfo& info,
                                            const RecordWriteOptions& options = {});

}  // namespace hs
