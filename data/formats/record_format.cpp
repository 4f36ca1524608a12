#include "data/formats/record_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "data/formats/shards.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"

namespace hs {
namespace {

constexpr std::string_view magic = "HSRECORD";
constexpr uint32_t byte_order = 0x01020304;
constexpr size_t name_offset = 120;
constexpr size_t crc_offset = record_header_bytes - 4;

// Calls field(offset, number) for each number of the header that decode and encode treat alike.
template <class Header, class Field>
void for_each_field(Header& h, const Field& field) {
  field(16, h.samples);
  field(24, h.set_samples);
  field(32, h.first_sample);
  field(40, h.shard);
  field(44, h.shards);
  field(48, h.rows);
  field(52, h.columns);
  field(56, h.channels);
  field(60, h.classes);
  field(76, h.samples_per_block);
  field(80, h.blocks);
  field(96, h.index_offset);
  field(104, h.file_bytes);
  field(112, h.index_crc);
  field(116, h.set_crc);
}

// Checks every number that others are computed from, before its use.
void check_numbers(const RecordHeader& h, const std::string& name) {
  const auto expect = [&name](const char* what, uint64_t value, uint64_t low, uint64_t high) {
    if (value >= low && value <= high) return;
    fail(ExitCode::bad_input, "{}: the header says {} {}, expected {} to {}; convert the set again", name, what, value,
         low, high);
  };
  expect("rows", h.rows, 1, max_image_side);
  expect("columns", h.columns, 1, max_image_side);
  expect("channels", h.channels, 1, max_image_channels);
  expect("classes", h.classes, 1, max_classes);
  expect("compression", static_cast<uint32_t>(h.compression), 0, 1);
  expect("shards", h.shards, 1, max_shards);
  expect("shard", h.shard, 0, h.shards - 1);
  expect("samples", h.samples, 1, uint64_t{1} << 40);
  expect("samples of the set", h.set_samples, h.samples, uint64_t{1} << 40);
  expect("first sample", h.first_sample, 0, h.set_samples - h.samples);
  expect("samples per block", h.samples_per_block, 1, record_max_block_bytes / h.image_bytes());
  const uint64_t blocks = (h.samples - 1) / h.samples_per_block + 1;
  expect("blocks", h.blocks, blocks, blocks);
  if (!std::isfinite(h.scale.mean) || !std::isfinite(h.scale.deviation) || !(h.scale.deviation > 0)) {
    fail(ExitCode::bad_input, "{}: the header says mean {} and deviation {} of the pixels; convert the set again", name,
         h.scale.mean, h.scale.deviation);
  }
}

}  // namespace

RecordHeaderBytes encode_record_header(const RecordHeader& header) {
  check(header.name.size() <= record_max_name, "the name {} is longer than {} bytes", header.name, record_max_name);
  RecordHeaderBytes bytes{};
  std::memcpy(bytes.data(), magic.data(), magic.size());
  put_little_endian(&bytes[8], record_version);
  put_little_endian(&bytes[12], byte_order);
  for_each_field(header, [&bytes](size_t offset, auto number) { put_little_endian(&bytes[offset], number); });
  put_little_endian(&bytes[64], std::bit_cast<uint32_t>(header.scale.mean));
  put_little_endian(&bytes[68], std::bit_cast<uint32_t>(header.scale.deviation));
  put_little_endian(&bytes[72], static_cast<uint32_t>(header.compression));
  put_little_endian(&bytes[88], uint64_t{record_header_bytes});
  std::memcpy(&bytes[name_offset], header.name.data(), header.name.size());
  put_little_endian(&bytes[crc_offset], crc32c(bytes.data(), crc_offset));
  return bytes;
}

RecordHeader decode_record_header(const RecordHeaderBytes& bytes, const std::string& name, uint64_t file_bytes) {
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) {
    fail(ExitCode::bad_input, "{}: does not start with {}; this is not a record file", name, magic);
  }
  const auto version = get_little_endian<uint32_t>(&bytes[8]);
  const auto order = get_little_endian<uint32_t>(&bytes[12]);
  if (order != byte_order) {
    fail(ExitCode::bad_input, "{}: byte order 0x{:08x}, expected 0x{:08x}; convert the set again", name, order,
         byte_order);
  }
  if (version != record_version) {
    fail(ExitCode::bad_input, "{}: version {}, this program reads version {}; convert the set again", name, version,
         record_version);
  }
  const auto crc = get_little_endian<uint32_t>(&bytes[crc_offset]);
  if (crc != crc32c(bytes.data(), crc_offset)) {
    fail(ExitCode::bad_input, "{}: the header is damaged (its CRC32C is not 0x{:08x}); copy the file again", name, crc);
  }
  RecordHeader header;
  for_each_field(header, [&bytes]<class Number>(size_t offset, Number& number) {
    number = get_little_endian<Number>(&bytes[offset]);
  });
  header.scale.mean = std::bit_cast<float>(get_little_endian<uint32_t>(&bytes[64]));
  header.scale.deviation = std::bit_cast<float>(get_little_endian<uint32_t>(&bytes[68]));
  header.compression = static_cast<RecordCompression>(get_little_endian<uint32_t>(&bytes[72]));
  const auto data_offset = get_little_endian<uint64_t>(&bytes[88]);
  const auto* text = reinterpret_cast<const char*>(&bytes[name_offset]);
  header.name.assign(text, std::find(text, text + record_max_name, '\0'));

  check_numbers(header, name);
  if (header.file_bytes != file_bytes) {
    fail(ExitCode::bad_input, "{}: the header says {} bytes, but there are {}; copy the file again", name,
         header.file_bytes, file_bytes);
  }
  // The index ends the file. At most 2^40 blocks and samples: no overflow.
  if (data_offset != record_header_bytes || header.index_offset < data_offset || header.index_offset > file_bytes ||
      file_bytes - header.index_offset != header.index_bytes()) {
    fail(ExitCode::bad_input,
         "{}: the header says data from byte {} and an index of {} bytes from byte {} of {}; convert the set again",
         name, data_offset, header.index_bytes(), header.index_offset, file_bytes);
  }
  return header;
}

}  // namespace hs
