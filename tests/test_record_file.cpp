// Record files: round trips, and files that are cut, damaged, mixed, or changed while they are read. And the parts that
// they are made of: CRC32C, files that appear whole, maps that lose their pages.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstring>
#include <set>
#include <thread>

#include "data/crc32c.h"
#include "data/little_endian.h"
#include "data/mapped_file.h"
#include "data/output_file.h"
#include "data/record_file.h"
#include "data/record_format.h"
#include "data/shards.h"
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

TEST_CASE("the layout is what data/record_format.h says, byte by byte") {
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

// Reads everything.
Outcome read_set(const fs::path& path) {
  return outcome_of([&] {
    const auto source = open_records(path);
    for (int64_t i = 0; i < source->info().count; ++i) read_image(*source, i);
  });
}

// A set in one file whose bytes a test may change.
struct OneFile {
  explicit OneFile(bool compress, int64_t count = 5, Shape3 shape = {}) : info(info_for(count, shape)) {
    write_all(*write_records(folder / "a", info, {.shards = 1, .compress = compress, .samples_per_block = 2}), info);
    path = folder / "a-00000-of-00001";
    good = read_bytes(path);
  }
  Outcome read_as(const Bytes& bytes) const {
    write_bytes(path, bytes);
    return read_set(path);
  }
  // With the sums of the header and the index made right again, as a forger would.
  Outcome read_sealed(Bytes bytes) const {
    const auto index = get_little_endian<uint64_t>(&bytes[96]);
    if (index <= bytes.size()) {
      const uint32_t crc = crc32c(bytes.data() + index, bytes.size() - index);
      put_little_endian(&bytes[112], crc);
      put_little_endian(&bytes[116], crc);
    }
    put_little_endian(&bytes[4092], crc32c(bytes.data(), 4092));
    return read_as(bytes);
  }

  TemporaryFolder folder;
  SampleInfo info;
  fs::path path;
  Bytes good;
};

TEST_CASE("cut at every byte, and one byte too many") {
  for (const bool compress : {false, true}) {
    const OneFile file(compress);
    for (size_t size = 0; size < file.good.size(); ++size) {
      CAPTURE(size);
      const Bytes cut(file.good.begin(), file.good.begin() + static_cast<std::ptrdiff_t>(size));
      check_refused(file.read_as(cut), ExitCode::bad_input, file.path.string() + ": ",
                    size < 4096 ? "truncated header, need 4096 bytes, have " + std::to_string(size)
                                : "but there are " + std::to_string(size));
    }
    Bytes longer = file.good;
    longer.push_back(0);
    check_refused(file.read_as(longer), ExitCode::bad_input, file.path.string(), "but there are");
  }
}

TEST_CASE("a flipped bit anywhere is noticed") {
  for (const bool compress : {false, true}) {
    const OneFile file(compress);
    for (size_t at = 0; at < file.good.size(); ++at) {
      CAPTURE(at);
      Bytes changed = file.good;
      changed[at] ^= static_cast<uint8_t>(1 << at % 8);
      const Outcome outcome = file.read_as(changed);
      const char* part = at < 8                                             ? "this is not a record file"
                         : at < 12                                          ? "this program reads version 1"
                         : at < 16                                          ? "byte order"
                         : at < 4096                                        ? "the header is damaged"
                         : at < get_little_endian<uint64_t>(&file.good[96]) ? "is damaged: CRC32C"
                                                                            : "the index at byte";
      check_refused(outcome, ExitCode::bad_input, file.path.string() + ": ", part);
      const bool in_block = at >= 4096 && at < get_little_endian<uint64_t>(&file.good[96]);
      CHECK((outcome.message.find("(sample ") != std::string::npos) == in_block);
    }
  }
}

TEST_CASE("headers that lie, with right checksums") {
  const uint64_t huge = UINT64_MAX;
  struct Row {
    size_t at;
    size_t size;
    uint64_t value;
    const char* part;
  };
  const Row rows[] = {
      {16, 8, 0, "samples 0, expected 1"},
      {16, 8, huge, "samples 18446744073709551615"},
      {16, 8, uint64_t{1} << 40, "samples of the set 5, expected 1099511627776"},
      {16, 8, 6, "samples of the set 5, expected 6"},
      {16, 8, 4, "blocks 3, expected 2"},
      {24, 8, 4, "samples of the set 4, expected 5"},
      {24, 8, 6, "said to be 6 samples in 1 shards, but there are 5 in 1"},
      {24, 8, huge, "samples of the set 18446744073709551615"},
      {32, 8, 1, "first sample 1, expected 0 to 0"},
      {32, 8, huge, "first sample 18446744073709551615"},
      {40, 4, 1, "shard 1, expected 0 to 0"},
      {44, 4, 0, "shards 0, expected 1"},
      {44, 4, 2, "said to be 5 samples in 2 shards"},
      {44, 4, 257, "shards 257, expected 1 to 256"},
      {48, 4, 0, "rows 0, expected 1 to 512"},
      {48, 4, 513, "rows 513, expected 1 to 512"},
      {48, 4, 4, "is said to be 12 bytes from byte 4096, for 16 bytes"},
      {52, 4, 0xffffffff, "columns 4294967295"},
      {56, 4, 5, "channels 5, expected 1 to 4"},
      {60, 4, 0, "classes 0, expected 1 to 1000"},
      {60, 4, 1001, "classes 1001, expected 1 to 1000"},
      {60, 4, 4, "of sample 2, expected 0 to 3"},
      {64, 4, 0x7fc00000, "mean nan"},
      {68, 4, 0, "deviation 0"},
      {68, 4, 0xbf800000, "deviation -1"},
      {72, 4, 2, "compression 2, expected 0 to 1"},
      {76, 4, 0, "samples per block 0, expected 1"},
      {76, 4, 0xffffffff, "samples per block 4294967295"},
      {76, 4, 3, "blocks 3, expected 2"},
      {80, 8, huge, "blocks 18446744073709551615, expected 3"},
      {88, 8, 0, "data from byte 0"},
      {96, 8, 4095, "an index of 58 bytes from byte 4095"},
      {96, 8, huge, "an index of 58 bytes from byte 18446744073709551615"},
      {96, 8, 4097, "an index of 58 bytes from byte 4097"},
      {104, 8, huge, "the header says 18446744073709551615 bytes"},
      {4126, 8, 0, "block 0 of 3 is said to be 12 bytes from byte 0"},
      {4126, 8, huge, "block 0 of 3 is said to be 12 bytes from byte 18446744073709551615"},
      {4134, 4, 11, "block 0 of 3 is said to be 11 bytes"},
      {4134, 4, 0xffffffff, "block 0 of 3 is said to be 4294967295 bytes"},
      {4166, 4, 0, "block 2 of 3 is said to be 0 bytes"},
      {4138, 4, 0, "expected 0x00000000"},
      {4174, 2, 10, "label 10 of sample 0, expected 0 to 9"},
      {4182, 2, 65535, "label 65535 of sample 4, expected 0 to 9"},
  };
  const OneFile file(false);
  REQUIRE(get_little_endian<uint64_t>(&file.good[96]) == 4126);
  REQUIRE(file.read_sealed(file.good).code == ExitCode::ok);
  for (const Row& row : rows) {
    CAPTURE(row.at);
    Bytes changed = file.good;
    for (size_t i = 0; i < row.size; ++i) changed[row.at + i] = static_cast<uint8_t>(row.value >> (8 * i));
    check_refused(file.read_sealed(changed), ExitCode::bad_input, file.path.string() + ": ", row.part);
  }
}

TEST_CASE("compressed blocks that lie, with right checksums") {
  // One block of 2 samples of 6 bytes.
  const OneFile file(true, 2);
  const auto with_block = [&](const Bytes& stored) {
    Bytes bytes(file.good.begin(), file.good.begin() + 4096);
    bytes.insert(bytes.end(), stored.begin(), stored.end());
    put_little_endian(&bytes[96], uint64_t{bytes.size()});
    Bytes entry(16);
    put_little_endian(&entry[0], uint64_t{4096});
    put_little_endian(&entry[8], static_cast<uint32_t>(stored.size()));
    put_little_endian(&entry[12], crc32c(stored.data(), stored.size()));
    bytes.insert(bytes.end(), entry.begin(), entry.end());
    bytes.insert(bytes.end(), 4, 0);  // labels
    put_little_endian(&bytes[104], uint64_t{bytes.size()});
    return file.read_sealed(bytes);
  };
  const auto deflated = [](size_t size) {
    const Bytes plain(size);
    uLongf bound = compressBound(size);
    Bytes packed(bound);
    REQUIRE(compress(packed.data(), &bound, plain.data(), size) == Z_OK);
    packed.resize(bound);
    return packed;
  };
  CHECK(with_block(deflated(12)).code == ExitCode::ok);
  Bytes trailing = deflated(12);
  trailing.push_back(0);
  Bytes cut = deflated(12);
  cut.pop_back();
  for (const Bytes& stored : {deflated(11), deflated(13), deflated(50 * mib), trailing, cut, Bytes(12), Bytes(1)}) {
    check_refused(with_block(stored), ExitCode::bad_input, file.path.string() + ": ",
                  "does not decompress to 12 bytes");
  }
  // A claim that deflate cannot keep is refused before memory is taken for it.
  Bytes claim = file.good;
  put_little_endian(&claim[48], uint32_t{512});
  put_little_endian(&claim[52], uint32_t{512});
  check_refused(file.read_sealed(claim), ExitCode::bad_input, file.path.string() + ": ", "for 524288 bytes of pixels");
}

TEST_CASE("shards: missing, mixed, renamed, from another set") {
  const auto write_set = [](const fs::path& prefix, int64_t shards, int64_t count, int64_t per_block = 4) {
    const SampleInfo info = info_for(count);
    write_all(*write_records(prefix, info, {.shards = shards, .compress = false, .samples_per_block = per_block}),
              info);
  };
  const auto refused = [](const fs::path& folder, const std::string& part) {
    check_refused(read_set(folder / "a"), ExitCode::bad_input, folder.string(), part);
  };
  for (int64_t gone = 0; gone < 3; ++gone) {
    const TemporaryFolder folder;
    write_set(folder / "a", 3, 20);
    fs::remove(shard_path(folder / "a", gone, 3));
    refused(folder.path, shard_path("a", gone, 3).string() + ": missing, and 2 of the 3 shards are here");
  }
  {
    const TemporaryFolder folder;
    check_refused(read_set(folder / "a"), ExitCode::io, folder.path.string(), "not found");
    check_refused(read_set(folder / "none" / "a"), ExitCode::io, folder.path.string(), "not found");
    write_set(folder / "a", 3, 20);
    write_set(folder / "ab", 2, 20);  // another prefix
    CHECK(read_set(folder / "a").code == ExitCode::ok);
    write_set(folder / "a", 2, 20);
    refused(folder.path, "shards of two sets here, of 2 and of 3 files");
  }
  {
    const TemporaryFolder folder;
    write_bytes(folder / "a-00000-of-00000", {});
    refused(folder.path, "a set of 0 shards");
    fs::rename(folder / "a-00000-of-00000", folder / "a-00000-of-00300");
    refused(folder.path, "a set of 300 shards, expected 1 to 256");
    fs::rename(folder / "a-00000-of-00300", folder / "a-00002-of-00002");
    refused(folder.path, "its name says shard 2 of 2");
    fs::rename(folder / "a-00002-of-00002", folder / "a-00001-of-2");
    check_refused(read_set(folder / "a"), ExitCode::io, folder.path.string(), "not found");
  }
  {
    const TemporaryFolder folder;
    write_set(folder / "a", 3, 30);
    fs::rename(folder / "a-00000-of-00003", folder / "x");
    fs::rename(folder / "a-00001-of-00003", folder / "a-00000-of-00003");
    fs::rename(folder / "x", folder / "a-00001-of-00003");
    refused(folder.path, "number of this shard 1, but 0 from");
  }
  // Another set with as many shards: other numbers, or only other pixels.
  const auto replaced_by = [&](const std::function<void(const fs::path&)>& write_other, const std::string& part) {
    const TemporaryFolder folder, other;
    write_set(folder / "a", 3, 30);
    write_other(other / "a");
    fs::copy_file(other / "a-00001-of-00003", folder / "a-00001-of-00003", fs::copy_options::overwrite_existing);
    refused(folder.path, part);
  };
  replaced_by([&](const fs::path& prefix) { write_set(prefix, 3, 33); }, "samples of the set 33, but 30 from");
  replaced_by([&](const fs::path& prefix) { write_set(prefix, 3, 30, 5); }, "samples per block 5, but 4 from");
  replaced_by(
      [](const fs::path& prefix) {
        const SampleInfo info = info_for(30);
        const auto writer = write_records(prefix, info, {.shards = 3, .compress = false, .samples_per_block = 4});
        for (int64_t i = 0; i < 30; ++i) writer->add(image_of(info, i + 1).data(), label_of(info, i));
        writer->finish();
      },
      "sum of the set");
  {
    // Each says the same sum, and it is not the sum of these.
    const TemporaryFolder folder;
    write_set(folder / "a", 3, 30);
    for (int64_t shard = 0; shard < 3; ++shard) {
      Bytes bytes = read_bytes(shard_path(folder / "a", shard, 3));
      put_little_endian(&bytes[116], uint32_t{1});
      put_little_endian(&bytes[4092], crc32c(bytes.data(), 4092));
      write_bytes(shard_path(folder / "a", shard, 3), bytes);
    }
    refused(folder.path, "the shards do not belong together");
  }
}

TEST_CASE("what is not a regular file") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "a-00000-of-00001");
  check_refused(read_set(folder / "a"), ExitCode::bad_input, folder.path.string(), "a folder, expected a regular file");
  REQUIRE(mkfifo((folder / "b-00000-of-00001").c_str(), 0600) == 0);
  check_refused(read_set(folder / "b"), ExitCode::bad_input, folder.path.string(), "a FIFO, expected a regular file");
}

constexpr auto longer_than_a_tick = std::chrono::milliseconds(30);

TEST_CASE("a file that shrinks or changes while it is open is an error, not a signal") {
  for (const bool compress : {false, true}) {
    CAPTURE(compress);
    const TemporaryFolder folder;
    const SampleInfo info = info_for(2000, {16, 16, 1});
    const auto written = [&](const char* name) {
      write_all(*write_records(folder / name, info, {.shards = 1, .compress = compress}), info);
      return folder / (std::string(name) + "-00000-of-00001");
    };
    // Cut without a pause: the pages are gone, and the time stamp was just looked at.
    const fs::path cut = written("cut");
    const auto source = open_records(cut, {.resident_limit = 0, .cache_bytes = 1});
    read_image(*source, 0);
    fs::resize_file(cut, 4096);
    check_refused(outcome_of([&] { read_image(*source, 1999); }), ExitCode::bad_input, cut.string() + ": ",
                  "bytes when it was opened and has 4096 now; do not change a file in use (sample 1999)");
    fs::resize_file(cut, 0);
    check_refused(outcome_of([&] { read_image(*source, 1000); }), ExitCode::bad_input, cut.string() + ": ",
                  "has 0 now");

    const fs::path longer = written("longer");
    const auto second = open_records(longer);
    read_image(*second, 0);
    fs::resize_file(longer, fs::file_size(longer) + 1);
    std::this_thread::sleep_for(longer_than_a_tick);
    check_refused(outcome_of([&] { read_image(*second, 1500); }), ExitCode::bad_input, longer.string(),
                  "when it was op");

    const fs::path changed = written("changed");
    std::this_thread::sleep_for(longer_than_a_tick);
    const auto third = open_records(changed);
    read_image(*third, 0);
    std::fstream(changed, std::ios::in | std::ios::out | std::ios::binary).seekp(5000).put('x');
    std::this_thread::sleep_for(longer_than_a_tick);
    check_refused(outcome_of([&] { read_image(*third, 1500); }), ExitCode::bad_input, changed.string() + ": ",
                  "was written to since it was opened");
  }
}

TEST_CASE("cut and restored again and again while threads read: right pixels or an error") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(2000, {16, 16, 1});
  write_all(*write_records(folder / "a", info), info);
  const fs::path path = folder / "a-00000-of-00001";
  const Bytes good = read_bytes(path);
  for (int round = 0; round < 30; ++round) {
    write_bytes(path, good);
    const auto source = open_records(path);
    std::atomic<int64_t> wrong = 0, errors = 0;
    std::vector<std::thread> readers;
    for (int thread = 0; thread < 3; ++thread) {
      readers.emplace_back([&, thread] {
        for (int64_t i = thread; errors < 100 && i < 400'000; ++i) {
          const int64_t sample = i * 37 % info.count;
          std::vector<uint8_t> image(256);
          try {
            source->read(sample, image.data());
          } catch (const Error& error) {
            if (error.code() != ExitCode::bad_input) ++wrong;
            ++errors;
          }
        }
      });
    }
    fs::resize_file(path, round % 2 == 0 ? 8192 : 0);
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == 0);
    CHECK(errors > 0);
  }
}

TEST_CASE("a SIGBUS that is not ours goes where it went before") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(5);
  write_all(*write_records(folder / "a", info), info);
  const auto source = open_records(folder / "a");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    raise(SIGBUS);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  // A sanitizer reports it and ends the program by itself.
  CHECK((WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0));
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

TEST_CASE("a set larger than the limit streams through the map: resident pages are bounded") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(16384, {64, 64, 1});  // 64 MiB
  write_all(*write_records(folder / "a", info), info);
  const fs::path path = folder / "a-00000-of-00001";
  const auto most_resident = [&](uint64_t limit) {
    const auto source = open_records(path, {.resident_limit = limit});
    std::vector<uint8_t> image(4096);
    uint64_t most = 0;
    for (int64_t i = 0; i < info.count; ++i) {
      source->read(i * 1237 % info.count, image.data());
      if (i % 64 == 0) most = std::max(most, resident_bytes_of(path));
    }
    CHECK(first_wrong(*source, info) == -1);
    return most;
  };
  CHECK(most_resident(0) >= 60 * mib);  // the measurement sees the map
  CHECK(most_resident(16 * mib) <= 20 * mib);
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
}

TEST_CASE("contracts: indices, labels and counts") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(5);
  write_all(*write_records(folder / "a", info), info);
  const auto source = open_records(folder / "a");
  uint8_t image[6];
  for (const int64_t index : {int64_t{-1}, int64_t{5}, INT64_MAX, INT64_MIN}) {
    CHECK(outcome_of([&] { source->read(index, image); }).code == ExitCode::internal);
    CHECK(outcome_of([&] { source->label(index); }).code == ExitCode::internal);
  }
  const auto writer = write_records(folder / "b", info);
  CHECK(outcome_of([&] { writer->add(image, 10); }).code == ExitCode::internal);
  CHECK(outcome_of([&] { writer->add(image, -1); }).code == ExitCode::internal);
  CHECK(outcome_of([&] { writer->finish(); }).code == ExitCode::internal);
  CHECK(folder.names().size() == 2);
}

}  // namespace
