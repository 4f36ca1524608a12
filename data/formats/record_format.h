// The header of a record file, version 1, as bytes and as numbers. docs/data_formats.md has the layout of the file.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "data/io/sample_source.h"

namespace hs {

inline constexpr size_t record_header_bytes = 4096;
inline constexpr uint32_t record_version = 1;
inline constexpr size_t record_block_entry_bytes = 16;
inline constexpr size_t record_label_bytes = 2;
inline constexpr size_t record_max_name = 63;
inline constexpr uint64_t record_max_block_bytes = uint64_t{1} << 24;  // decompressed

enum class RecordCompression : uint32_t { none = 0, zlib = 1 };

struct RecordHeader {
  SampleInfo set;  // name, shape, count, classes and scale are in the file, and the classes' names if they fit
  uint64_t samples = 0;
  uint64_t first_sample = 0;
  uint32_t shard = 0;
  uint32_t shards = 1;
  RecordCompression compression = RecordCompression::none;
  uint32_t samples_per_block = 0;
  uint64_t blocks = 0;
  uint64_t index_offset = 0;
  uint64_t file_bytes = 0;
  uint32_t index_crc = 0;
  uint32_t set_crc = 0;

  uint64_t image_bytes() const { return static_cast<uint64_t>(set.image_bytes()); }
  uint64_t samples_in_block(uint64_t block) const {
    return block + 1 < blocks ? samples_per_block : samples - block * samples_per_block;
  }
  uint64_t index_bytes() const { return blocks * record_block_entry_bytes + samples * record_label_bytes; }
};

using RecordHeaderBytes = std::array<uint8_t, record_header_bytes>;

RecordHeaderBytes encode_record_header(const RecordHeader& header);

// The sizes that it returns fit into a file of `file_bytes` bytes, so they are safe to allocate.
// Throws Error (bad_input) that starts with `name`.
RecordHeader decode_record_header(const RecordHeaderBytes& bytes, const std::string& name, uint64_t file_bytes);

}  // namespace hs
