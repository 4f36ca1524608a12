// Record files: round trips, the layout byte by byte, files that are too large to be mapped, and CRC32C, which all are
// checked with. Damaged files: tests/data/record_damage.cpp. Writers that fail: tests/data/sample_writer.cpp.
#include "data/formats/record_file.h"
#include "data/formats/shards.h"
#include "engine/files/crc32c.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

TEST_CASE("crc32c: published vectors, both ways to compute it, in pieces") {
  // RFC 3720, section B.4; and the check value of the CRC catalogues.
  Bytes up(32);
  for (size_t i = 0; i < 32; ++i) up[i] = static_cast<uint8_t>(i);
  const Bytes iscsi_read =
      from_hex("01c00000000000000000000000000000140000000000040000000014000000182800000000000000") +
      from_hex("0200000000000000");
  const struct {
    Bytes bytes;
    uint32_t crc;
  } vectors[] = {{Bytes(32, 0), 0x8a9136aa},
                 {Bytes(32, 0xff), 0x62a8ab43},
                 {up, 0x46dd794e},
                 {Bytes(up.rbegin(), up.rend()), 0x113fdb5c},
                 {iscsi_read, 0xd9963a56},
                 {bytes_of("123456789"), 0xe3069283},
                 {{}, 0}};
  for (const auto& [bytes, crc] : vectors) {
    CHECK(crc32c(bytes.data(), bytes.size()) == crc);
    CHECK(crc32c_table(bytes.data(), bytes.size()) == crc);
  }
  // Sizes around the words of the processor's instruction, at odd addresses, and cut in two.
  const Bytes noise = image_of(info_for(1, {100, 100, 1}), 0);
  for (const size_t size : {1, 7, 8, 9, 15, 16, 17, 1537, 9999}) {
    CAPTURE(size);
    const uint32_t expected = crc32c_table(noise.data() + 1, size);
    CHECK(crc32c(noise.data() + 1, size) == expected);
    const size_t cut = size / 3;
    CHECK(crc32c(noise.data() + 1 + cut, size - cut, crc32c(noise.data() + 1, cut)) == expected);
  }
}

struct Variant {
  int64_t count;
  ImageShape shape;
  RecordWriteOptions options;
  int classes = 10;
};

TEST_CASE("round trip: shards, blocks, compression, shapes") {
  const Variant variants[] = {
      {1, {1, 1, 1}, {}},
      {5, {3, 2, 1}, {}},
      {5, {3, 2, 1}, {.shards = 5, .compress = true}},
      {100, {3, 2, 1}, {.shards = 3, .compress = false, .samples_per_block = 7}},
      {100, {3, 2, 1}, {.shards = 3, .compress = true, .samples_per_block = 7}},
      {97, {32, 32, 3}, {.shards = 4, .compress = true, .samples_per_block = 25}, 97},
      {3, {512, 512, 4}, {.shards = 2}, 1000},
      {100, {28, 28, 1}, {.shards = 40}},
  };
  for (const Variant& v : variants) {
    CAPTURE(v.count);
    CAPTURE(v.options.shards);
    const TemporaryFolder folder;
    const SampleInfo info = info_for(v.count, v.shape, v.classes);
    write_all(*write_records(folder / "a.record", info, v.options), info);
    CHECK(folder.names().size() == static_cast<size_t>(v.options.shards));
    for (const fs::path& path : {folder / "a.record", shard_path(folder / "a.record", 0, v.options.shards)}) {
      // A cache of 4 blocks, and of all.
      for (const uint64_t cache : {uint64_t{1}, uint64_t{1} << 26}) {
        const auto source = open_records(path, {.map_limit = 0, .cache_bytes = cache});
        CHECK(same_shape(source->info(), info));
        CHECK(source->info().name == "numbered");
        CHECK(source->info().scale.mean == 0.25f);
        CHECK(source->info().scale.deviation == 0.5f);
        CHECK(first_wrong(*source, info) == -1);
      }
    }
  }
}

Bytes u32(std::initializer_list<uint32_t> numbers) {
  Bytes bytes;
  for (const uint32_t number : numbers) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<uint8_t>(number >> shift));
  }
  return bytes;
}
Bytes u64(uint32_t number) { return u32({number, 0}); }

TEST_CASE("the layout is what docs/data_formats.md says, byte by byte") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(3, {1, 2, 1});
  write_all(*write_records(folder / "a", info, {.samples_per_block = 2}), info);
  const auto crc_of = [](const Bytes& bytes) { return crc32c(bytes.data(), bytes.size()); };
  const Bytes first_block = image_of(info, 0) + image_of(info, 1), second_block = image_of(info, 2);
  Bytes index = u64(4096) + u32({4, crc_of(first_block)}) + u64(4100) + u32({2, crc_of(second_block)});
  for (int i = 0; i < 3; ++i) index = index + Bytes{static_cast<uint8_t>(label_of(info, i)), 0};
  const uint32_t mean = 0x3e800000, deviation = 0x3f000000;  // 0.25f, 0.5f
  Bytes header = bytes_of("HSRECORD") + u32({1, 0x01020304}) + u64(3) + u64(3) + u64(0) +
                 u32({0, 1, 1, 2, 1, 10, mean, deviation, 0, 2}) + u64(2) + u64(4096) + u64(4102) +
                 u64(4102 + 2 * 16 + 3 * 2) + u32({crc_of(index), crc_of(index)}) + bytes_of("numbered");
  header.resize(4092);
  CHECK(read_bytes(folder / "a-00000-of-00001") == header + u32({crc_of(header)}) + first_block + second_block + index);
}

TEST_CASE("a folder is in the way of the second shard: the first one is taken back") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(10);
  write_bytes(folder / "a-00001-of-00002" / "x", {});
  CHECK(outcome_of([&] { write_all(*write_records(folder / "a", info, {.shards = 2}), info); }).code == ExitCode::io);
  CHECK(folder.names() == std::set<std::string>{"a-00001-of-00002"});
  fs::remove_all(folder / "a-00001-of-00002");

  // Made after the writer looked: the first shard has its name before the second fails.
  const auto writer = write_records(folder / "a", info, {.shards = 2});
  for (int64_t i = 0; i < info.count; ++i) writer->add(image_of(info, i).data(), 0);
  write_bytes(folder / "a-00001-of-00002" / "x", {});
  CHECK(outcome_of([&] { writer->finish(); }).code == ExitCode::io);
  CHECK(!folder.names().contains("a-00000-of-00002"));
}

TEST_CASE("indices outside of the set") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(5);
  write_all(*write_records(folder / "a", info), info);
  const auto source = open_records(folder / "a");
  uint8_t image[6];
  for (const int64_t index : {int64_t{-1}, int64_t{5}, INT64_MAX, INT64_MIN}) {
    CHECK(outcome_of([&] { source->read(index, image); }).code == ExitCode::usage);
    CHECK(outcome_of([&] { source->label(index); }).code == ExitCode::usage);
  }
}

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
