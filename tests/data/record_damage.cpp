// Record files that are cut, damaged, mixed, or lie. What was written is read: tests/data/record_file.cpp.
#include "data/formats/record_file.h"
#include "data/formats/shards.h"
#include "engine/files/crc32c.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

void read_all(const fs::path& path) {
  const auto source = open_records(path);
  for (int64_t i = 0; i < source->info().count; ++i) read_image(*source, i);
}

// A set in one file whose bytes a test may change.
struct OneFile : DamagedFile {
  explicit OneFile(bool compress, int64_t count = 5) : DamagedFile(read_all, "a-00000-of-00001") {
    const SampleInfo info = info_for(count);
    write_all(*write_records(folder / "a", info, {.shards = 1, .compress = compress, .samples_per_block = 2}), info);
    good = read_bytes(path);
  }
  uint64_t index_offset() const { return get_little_endian<uint64_t>(&good[96]); }

  Bytes good;
};

// With the sums of the header and the index made right again, as a forger would.
Bytes sealed(Bytes bytes) {
  const auto index = get_little_endian<uint64_t>(&bytes[96]);
  if (index <= bytes.size()) {
    const uint32_t crc = crc32c(bytes.data() + index, bytes.size() - index);
    put_little_endian(&bytes[112], crc);
    put_little_endian(&bytes[116], crc);
  }
  put_little_endian(&bytes[4092], crc32c(bytes.data(), 4092));
  return bytes;
}

TEST_CASE("cut at every byte, one byte too many, and a flipped bit anywhere") {
  for (const bool compress : {false, true}) {
    const OneFile file(compress);
    file.check_sizes(file.good, [](size_t size) {
      return (size < 4096 ? "truncated header, need 4096 bytes, have " : "but there are ") + std::to_string(size);
    });
    file.check_flips(file.good, file.good.size(), [&](size_t at) {
      return at < 8                     ? "this is not a record file"
             : at < 12                  ? "this program reads version 1"
             : at < 16                  ? "byte order"
             : at < 4096                ? "the header is damaged"
             : at < file.index_offset() ? "copy the file again (sample "
                                        : "the index at byte";
    });
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
  REQUIRE(file.index_offset() == 4126);
  REQUIRE(sealed(file.good) == file.good);
  for (const Row& row : rows) {
    CAPTURE(row.at);
    Bytes changed = file.good;
    for (size_t i = 0; i < row.size; ++i) changed[row.at + i] = static_cast<uint8_t>(row.value >> (8 * i));
    file.check_refused(sealed(changed), row.part);
  }
}

TEST_CASE("compressed blocks that lie, with right checksums") {
  // One block of 2 samples of 6 bytes.
  const OneFile file(true, 2);
  const auto with_block = [&](const Bytes& stored) {
    Bytes bytes = first_bytes(file.good, 4096) + stored;
    put_little_endian(&bytes[96], uint64_t{bytes.size()});
    Bytes entry(16);
    put_little_endian(&entry[0], uint64_t{4096});
    put_little_endian(&entry[8], static_cast<uint32_t>(stored.size()));
    put_little_endian(&entry[12], crc32c(stored.data(), stored.size()));
    bytes = bytes + entry + Bytes(4);  // labels
    put_little_endian(&bytes[104], uint64_t{bytes.size()});
    return sealed(bytes);
  };
  const Bytes right = deflated(Bytes(12));
  CHECK(file.read(with_block(right)).code == ExitCode::ok);
  for (const Bytes& stored : {deflated(Bytes(11)), deflated(Bytes(13)), deflated(Bytes(50 * mib)), right + Bytes{0},
                              first_bytes(right, right.size() - 1), Bytes(12), Bytes(1)}) {
    file.check_refused(with_block(stored), "does not decompress to 12 bytes");
  }
  // A claim that deflate cannot keep is refused before memory is taken for it.
  Bytes claim = file.good;
  put_little_endian(&claim[48], uint32_t{512});
  put_little_endian(&claim[52], uint32_t{512});
  file.check_refused(sealed(claim), "for 524288 bytes of pixels");
}

TEST_CASE("shards: renamed, and from another set") {
  const auto write_set = [](const fs::path& prefix, int64_t count, int64_t per_block = 4) {
    const SampleInfo info = info_for(count);
    write_all(*write_records(prefix, info, {.shards = 3, .compress = false, .samples_per_block = per_block}), info);
  };
  const auto refused = [](const TemporaryFolder& folder, const std::string& part) {
    check_refused(outcome_of([&] { read_all(folder / "a"); }), ExitCode::bad_input, folder.path.string(), part);
  };
  {
    const TemporaryFolder folder;
    write_set(folder / "a", 30);
    fs::rename(folder / "a-00000-of-00003", folder / "x");
    fs::rename(folder / "a-00001-of-00003", folder / "a-00000-of-00003");
    fs::rename(folder / "x", folder / "a-00001-of-00003");
    refused(folder, "number of this shard 1, but 0 from");
  }
  // Another set with as many shards: other numbers, or only other pixels.
  const auto replaced_by = [&](const std::function<void(const fs::path&)>& write_other, const std::string& part) {
    const TemporaryFolder folder, other;
    write_set(folder / "a", 30);
    write_other(other / "a");
    fs::copy_file(other / "a-00001-of-00003", folder / "a-00001-of-00003", fs::copy_options::overwrite_existing);
    refused(folder, part);
  };
  replaced_by([&](const fs::path& prefix) { write_set(prefix, 33); }, "samples of the set 33, but 30 from");
  replaced_by([&](const fs::path& prefix) { write_set(prefix, 30, 5); }, "samples per block 5, but 4 from");
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
    write_set(folder / "a", 30);
    for (int64_t shard = 0; shard < 3; ++shard) {
      Bytes bytes = read_bytes(shard_path(folder / "a", shard, 3));
      put_little_endian(&bytes[116], uint32_t{1});
      put_little_endian(&bytes[4092], crc32c(bytes.data(), 4092));
      write_bytes(shard_path(folder / "a", shard, 3), bytes);
    }
    refused(folder, "the shards do not belong together");
  }
}

}  // namespace
