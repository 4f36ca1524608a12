#include "data/formats/record_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>

#include "data/formats/shards.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "engine/printable.h"

namespace hs {
namespace {

constexpr std::string_view magic = "HSRECORD";
constexpr uint32_t byte_order = 0x01020304;
constexpr size_t name_offset = 120;
constexpr size_t crc_offset = record_header_bytes - 4;
// The names of the classes, each with a line feed behind it, which none of them has in it; zeros where there are none.
constexpr size_t names_offset = name_offset + record_max_name + 1;
constexpr size_t max_names = crc_offset - names_offset;

// Calls field(offset, type in the file, number) for each number of the header that decode and encode treat alike.
template <class Header, class Field>
void for_each_field(Header& h, const Field& field) {
  constexpr uint32_t u32{};
  constexpr uint64_t u64{};
  field(16, u64, h.samples);
  field(24, u64, h.set.count);
  field(32, u64, h.first_sample);
  field(40, u32, h.shard);
  field(44, u32, h.shards);
  field(48, u32, h.set.rows);
  field(52, u32, h.set.columns);
  field(56, u32, h.set.channels);
  field(60, u32, h.set.classes);
  field(72, u32, h.compression);
  field(76, u32, h.samples_per_block);
  field(80, u64, h.blocks);
  field(96, u64, h.index_offset);
  field(104, u64, h.file_bytes);
  field(112, u32, h.index_crc);
  field(116, u32, h.set_crc);
}

// Checks every number that others are computed from, before its use.
void check_numbers(const RecordHeader& h, const std::string& name) {
  const auto expect = [&name](const char* what, auto number, uint64_t low, uint64_t high) {
    const auto value = static_cast<uint64_t>(number);
    if (value >= low && value <= high) return;
    fail(ExitCode::bad_input, "{}: the header says {} {}, expected {} to {}; convert the set again", name, what, value,
         low, high);
  };
  expect("rows", h.set.rows, 1, max_image_side);
  expect("columns", h.set.columns, 1, max_image_side);
  expect("channels", h.set.channels, 1, max_image_channels);
  expect("classes", static_cast<uint32_t>(h.set.classes), 1, max_classes);
  expect("compression", h.compression, 0, 1);
  expect("shards", h.shards, 1, max_shards);
  expect("shard", h.shard, 0, h.shards - 1);
  expect("samples", h.samples, 1, uint64_t{1} << 40);
  expect("samples of the set", h.set.count, h.samples, uint64_t{1} << 40);
  expect("first sample", h.first_sample, 0, static_cast<uint64_t>(h.set.count) - h.samples);
  expect("samples per block", h.samples_per_block, 1, record_max_block_bytes / h.image_bytes());
  const uint64_t blocks = (h.samples - 1) / h.samples_per_block + 1;
  expect("blocks", h.blocks, blocks, blocks);
  const auto [mean, deviation] = h.set.scale;
  if (!std::isfinite(mean) || !std::isfinite(deviation) || !(deviation > 0)) {
    fail(ExitCode::bad_input, "{}: the header says mean {} and deviation {} of the pixels; convert the set again", name,
         mean, deviation);
  }
}

}  // namespace

RecordHeaderBytes encode_record_header(const RecordHeader& header) {
  RecordHeaderBytes bytes{};
  std::memcpy(bytes.data(), magic.data(), magic.size());
  put_little_endian(&bytes[8], record_version);
  put_little_endian(&bytes[12], byte_order);
  for_each_field(header, [&bytes]<class Stored>(size_t offset, Stored, auto number) {
    put_little_endian(&bytes[offset], static_cast<Stored>(number));
  });
  put_little_endian(&bytes[64], std::bit_cast<uint32_t>(header.set.scale.mean));
  put_little_endian(&bytes[68], std::bit_cast<uint32_t>(header.set.scale.deviation));
  put_little_endian(&bytes[88], uint64_t{record_header_bytes});
  header.set.name.copy(reinterpret_cast<char*>(&bytes[name_offset]), record_max_name);
  if (const std::string names = fmt::format("{}\n", fmt::join(header.set.class_names, "\n"));
      !header.set.class_names.empty() && names.size() <= max_names) {
    names.copy(reinterpret_cast<char*>(&bytes[names_offset]), max_names);
  }
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
  for_each_field(header, [&bytes]<class Stored, class Number>(size_t offset, Stored, Number& number) {
    number = static_cast<Number>(get_little_endian<Stored>(&bytes[offset]));
  });
  header.set.scale.mean = std::bit_cast<float>(get_little_endian<uint32_t>(&bytes[64]));
  header.set.scale.deviation = std::bit_cast<float>(get_little_endian<uint32_t>(&bytes[68]));
  const auto data_offset = get_little_endian<uint64_t>(&bytes[88]);
  const auto* text = reinterpret_cast<const char*>(&bytes[name_offset]);
  header.set.name.assign(text, std::find(text, text + record_max_name, '\0'));

  check_numbers(header, name);
  std::istringstream names(std::string(text + record_max_name + 1, max_names));
  for (std::string one; std::getline(names, one) && !names.eof();)
    header.set.class_names.push_back(printable_text(one));
  if (!header.set.class_names.empty() && std::ssize(header.set.class_names) != header.set.classes) {
    fail(ExitCode::bad_input, "{}: the header has names for {} of {} classes; convert the set again", name,
         header.set.class_names.size(), header.set.classes);
  }
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
