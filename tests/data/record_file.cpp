// Record files: round trips, the layout byte by byte, and writers that do not come to their end. And CRC32C, which they
// are checked with. Damaged files: tests/data/record_damage.cpp.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <set>
#include <thread>

#include "data/formats/crc32c.h"
#include "data/formats/little_endian.h"
#include "data/formats/record_file.h"
#include "data/formats/shards.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

TEST_CASE("crc32c: published vectors, both ways to compute it, in pieces") {
  // RFC 3720, section B.4; and the check value of the CRC catalogues.
  Bytes up(32), down(32);
  for (size_t i = 0; i < 32; ++i) {
    up[i] = static_cast<uint8_t>(i);
    down[i] = static_cast<uint8_t>(31 - i);
  }
  const Bytes iscsi_read = {0x01, 0xc0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 4, 0,
                            0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 2,    0, 0, 0, 0, 0, 0, 0};
  const struct {
    Bytes bytes;
    uint32_t crc;
  } vectors[] = {{Bytes(32, 0), 0x8a9136aa},
                 {Bytes(32, 0xff), 0x62a8ab43},
                 {up, 0x46dd794e},
                 {down, 0x113fdb5c},
                 {iscsi_read, 0xd9963a56},
                 {{'1', '2', '3', '4', '5', '6', '7', '8', '9'}, 0xe3069283},
                 {{}, 0}};
  for (const auto& [bytes, crc] : vectors) {
    CHECK(crc32c(bytes.data(), bytes.size()) == crc);
    CHECK(crc32c_table(bytes.data(), bytes.size()) == crc);
    if (crc32c_has_hardware()) CHECK(crc32c_hardware(bytes.data(), bytes.size()) == crc);
  }
  // Sizes around the three streams of the hardware's way, at odd addresses, and cut in two anywhere.
  const Bytes noise = image_of(info_for(1, {100, 100, 1}), 0);
  for (const size_t size : {1, 7, 8, 9, 1535, 1536, 1537, 3071, 3072, 3080, 9999}) {
    CAPTURE(size);
    const uint32_t expected = crc32c_table(noise.data() + 1, size);
    CHECK(crc32c(noise.data() + 1, size) == expected);
    const size_t cut = size / 3;
    CHECK(crc32c(noise.data() + 1 + cut, size - cut, crc32c(noise.data() + 1, cut)) == expected);
  }
}

struct Variant {
  int64_t count;
  Shape3 shape;
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
        const auto source = open_records(path, {.resident_limit = 0, .cache_bytes = cache});
        CHECK(same_shape(source->info(), info));
        CHECK(source->info().name == "numbered");
        CHECK(source->info().scale.mean == 0.25f);
        CHECK(source->info().scale.deviation == 0.5f);
        CHECK(first_wrong(*source, info) == -1);
      }
    }
  }
}

TEST_CASE("the layout is what data/formats/record_format.h says, byte by byte") {
  const TemporaryFolder folder;
  SampleInfo info = info_for(3, {1, 2, 1});
  write_all(*write_records(folder / "a", info, {.samples_per_block = 2}), info);
  const Bytes file = read_bytes(folder / "a-00000-of-00001");
  REQUIRE(file.size() == 4096 + 6 + 2 * 16 + 3 * 2);
  const auto u32 = [&](size_t at) { return get_little_endian<uint32_t>(&file[at]); };
  const auto u64 = [&](size_t at) { return get_little_endian<uint64_t>(&file[at]); };
  CHECK(std::memcmp(file.data(), "HSRECORD\1\0\0\0\4\3\2\1", 16) == 0);
  CHECK(u64(16) == 3);
  CHECK(u64(24) == 3);
  CHECK(u64(32) == 0);
  CHECK(u32(40) == 0);
  CHECK(u32(44) == 1);
  CHECK(u32(48) == 1);
  CHECK(u32(52) == 2);
  CHECK(u32(56) == 1);
  CHECK(u32(60) == 10);
  CHECK(u32(64) == 0x3e800000);  // 0.25f
  CHECK(u32(68) == 0x3f000000);
  CHECK(u32(72) == 0);
  CHECK(u32(76) == 2);
  CHECK(u64(80) == 2);
  CHECK(u64(88) == 4096);
  CHECK(u64(96) == 4102);
  CHECK(u64(104) == file.size());
  CHECK(u32(112) == crc32c(&file[4102], file.size() - 4102));
  CHECK(u32(116) == u32(112));  // one shard
  CHECK(std::strcmp(reinterpret_cast<const char*>(&file[120]), "numbered") == 0);
  CHECK(u32(4092) == crc32c(file.data(), 4092));
  Bytes pixels;
  for (int i = 0; i < 3; ++i) {
    for (const uint8_t pixel : image_of(info, i)) pixels.push_back(pixel);
  }
  CHECK(std::equal(pixels.begin(), pixels.end(), file.begin() + 4096));
  CHECK(u64(4102) == 4096);
  CHECK(u32(4110) == 4);
  CHECK(u32(4114) == crc32c(&file[4096], 4));
  CHECK(u64(4118) == 4100);
  CHECK(u32(4126) == 2);
  CHECK(u32(4130) == crc32c(&file[4100], 2));
  for (int i = 0; i < 3; ++i) CHECK(file[4134 + 2 * static_cast<size_t>(i)] == label_of(info, i));
}

TEST_CASE("many threads read the same samples, compressed and not") {
  for (const bool compress : {false, true}) {
    const TemporaryFolder folder;
    const SampleInfo info = info_for(500);
    write_all(*write_records(folder / "a", info, {.shards = 3, .compress = compress, .samples_per_block = 9}), info);
    const auto source = open_records(folder / "a", {.resident_limit = 0, .cache_bytes = 1});
    std::atomic<int64_t> wrong = 0;
    std::vector<std::thread> readers;
    for (int64_t thread = 0; thread < 4; ++thread) {
      readers.emplace_back([&, thread] {
        for (int64_t i = 0; i < 4000; ++i) {
          const int64_t sample = (i * 101 + thread * 13) % info.count;
          std::vector<uint8_t> image(6);
          source->read(sample, image.data());
          if (image != image_of(info, sample) || source->label(sample) != label_of(info, sample)) ++wrong;
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("nothing is left at the path, or beside it, if writing fails or is given up") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(100, {64, 64, 1});
  {
    const auto writer = write_records(folder / "a", info, {.shards = 2});
    for (int64_t i = 0; i < 60; ++i) writer->add(image_of(info, i).data(), 0);
    CHECK(!folder.names().empty());
    CHECK(!folder.names().contains("a-00000-of-00002"));
  }
  CHECK(folder.names().empty());
  CHECK(outcome_of([&] { write_records(folder / "no" / "a", info); }).code == ExitCode::io);
  CHECK(outcome_of([&] { write_records(folder / "a", info, {.shards = 101}); }).code == ExitCode::usage);
  CHECK(outcome_of([&] { write_records(folder / "a", info, {.shards = 0}); }).code == ExitCode::usage);
  CHECK(folder.names().empty());

  // A file may have 100 kB: each write beyond fails, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t limit : {0, 1, 4095, 4096, 100'000, 207'000}) {
    CAPTURE(limit);
    const rlimit small = {limit, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const Outcome outcome = outcome_of([&] { write_all(*write_records(folder / "a", info, {.shards = 2}), info); });
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(outcome.code == ExitCode::io);
    CHECK_MESSAGE(outcome.message.starts_with((folder / "a-0000").string()), outcome.message);
    CHECK_MESSAGE(outcome.message.find("cannot be written: File too large") != std::string::npos, outcome.message);
    CHECK(folder.names().empty());
  }
  write_all(*write_records(folder / "a", info, {.shards = 2}), info);
  CHECK(folder.names() == std::set<std::string>{"a-00000-of-00002", "a-00001-of-00002"});
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

TEST_CASE("contracts: indices, labels and counts") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(5);
  write_all(*write_records(folder / "a", info), info);
  const auto source = open_records(folder / "a");
  uint8_t image[6];
  for (const int64_t index : {int64_t{-1}, int64_t{5}, INT64_MAX, INT64_MIN}) {
    CHECK(outcome_of([&] { source->read(index, image); }).code == ExitCode::usage);
    CHECK(outcome_of([&] { source->label(index); }).code == ExitCode::usage);
  }
  const auto writer = write_records(folder / "b", info);
  CHECK(outcome_of([&] { writer->add(image, 10); }).code == ExitCode::usage);
  CHECK(outcome_of([&] { writer->add(image, -1); }).code == ExitCode::usage);
  CHECK(outcome_of([&] { writer->finish(); }).code == ExitCode::usage);
  CHECK(!folder.names().contains("b-00000-of-00001"));
}

}  // namespace
