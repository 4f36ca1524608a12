// The layout of a record file, version 1. All numbers are little-endian.
//
//   offset  bytes                                       offset  bytes
//   0       8  "HSRECORD"                               64      4  PixelScale.mean (f32)
//   8       4  version, 1                               68      4  PixelScale.deviation (f32)
//   12      4  0x01020304, the byte order               72      4  compression: 0 none, 1 zlib
//   16      8  samples in this file                     76      4  samples per block
//   24      8  samples in the set                       80      8  blocks in this file
//   32      8  first sample of this file                88      8  offset of the first block, 4096
//   40      4  number of this shard                     96      8  offset of the index
//   44      4  shards of the set                        104     8  size of the file
//   48      4  rows                                     112     4  CRC32C of the index
//   52      4  columns                                  116     4  CRC32C of the indexes of all shards, in order
//   56      4  channels                                 120    64  name of the set, zero-padded
//   60      4  classes                                  4092    4  CRC32C of bytes 0 to 4091
//
//   4096                    blocks, one behind the other: the pixels of `samples per block` samples (the last has
//                           fewer), raw or as one zlib stream
//   offset of the index     for each block: 8 offset, 4 stored bytes, 4 CRC32C of them; then for each sample 2 label
//
// What is in the index follows from the pixels and labels of a shard, so the sum at 116 ties the shards of a set
// together: one from another set, or from an older conversion, is noticed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "data/sample_source.h"

namespace hs {

inline constexpr size_t record_header_bytes = 4096;
inline constexpr uint32_t record_version = 1;
inline constexpr size_t record_block_entry_bytes = 16;
inline constexpr size_t record_label_bytes = 2;
inline constexpr size_t record_max_name = 63;
inline constexpr uint64_t record_max_block_bytes = uint64_t{1} << 24;  // decompressed

enum class RecordCompression : uint32_t { none = 0, zlib = 1 };

struct RecordHeader {
  uint64_t samples = 0;
  uint64_t set_samples = 0;
  uint64_t first_sample = 0;
  uint32_t shard = 0;
  uint32_t shards = 1;
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t channels = 0;
  uint32_t classes = 0;
  PixelScale scale;
  RecordCompression compression = RecordCompression::none;
  uint32_t samples_per_block = 0;
  uint64_t blocks = 0;
  uint64_t index_offset = 0;
  uint64_t file_bytes = 0;
  uint32_t index_crc = 0;
  uint32_t set_crc = 0;
  std::string name;

  uint64_t image_bytes() const { return uint64_t{rows} * columns * channels; }
  uint64_t samples_in_block(uint64_t block) const {
    return block + 1 < blocks ? samples_per_block : samples - block * samples_per_block;
  }
  uint64_t index_bytes() const { return blocks * record_block_entry_bytes + samples * record_label_bytes; }
};

using RecordHeaderBytes = std::array<uint8_t, record_header_bytes>;

RecordHeaderBytes encode_record_header(const RecordHeader& header);

// What it returns fits into a file of `file_bytes` bytes: memory may be taken for it.
// Throws Error (bad_input) that starts with `name`.
RecordHeader decode_record_header(const RecordHeaderBytes& bytes, const std::string& name, uint64_t file_bytes);

}  // namespace hs
