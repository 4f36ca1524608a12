// The IDX reader against files that lie, and what the writer writes. Every refusal is one line, has the right exit code
// and costs no memory. How a folder of IDX files becomes a set: tests/data/open_dataset.cpp.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "data/formats/idx.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

constexpr uint32_t images_magic = 0x00000803, labels_magic = 0x00000801;
constexpr uint32_t short_labels_magic = 0x00000b01, int_labels_magic = 0x00000c01;

Bytes counting(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 1);
  return bytes;
}

// 5 images of 3 x 2 and 5 labels.
Bytes good_images() { return big_endian({images_magic, 5, 3, 2}) + counting(30); }
Bytes good_labels() { return big_endian({labels_magic, 5}) + Bytes{0, 9, 3, 1, 9}; }

DamagedFile images_file() {
  return DamagedFile([](const fs::path& path) { read_idx_images(path); });
}
DamagedFile labels_file() {
  return DamagedFile([](const fs::path& path) { read_idx_labels(path, 10); });
}

TEST_CASE("good files are read, plain and gzip whatever their name, with and without a limit") {
  const TemporaryFolder folder;
  const auto written = [&](const std::string& name, const Bytes& bytes) {
    write_bytes(folder / name, bytes);
    return folder / name;
  };
  const Bytes all = counting(30);
  for (const fs::path& path : {written("plain.gz", good_images()), written("packed-ubyte", gzip(good_images())),
                               written("odd name; $(x)\n\xff", good_images())}) {
    for (const int64_t limit : {0, 1, 4, 5, 6}) {
      CAPTURE(limit);
      const IdxImages images = read_idx_images(path, limit);
      const int64_t count = limit == 0 ? 5 : std::min<int64_t>(limit, 5);
      CHECK(images.total == 5);
      CHECK(images.count == count);
      CHECK(images.rows == 3);
      CHECK(images.columns == 2);
      CHECK(images.pixels == first_bytes(all, static_cast<size_t>(count * 6)));
    }
  }
  for (const fs::path& path : {written("labels.gz", good_labels()), written("labels", gzip(good_labels()))}) {
    CHECK(read_idx_labels(path, 10) == std::vector<int32_t>{0, 9, 3, 1, 9});
  }
  // Longer than one read.
  const Bytes large = big_endian({images_magic, 300, 28, 28}) + counting(300 * 784);
  CHECK(read_idx_images(written("large", large)).pixels == counting(300 * 784));
  CHECK(read_idx_images(written("large.gz", gzip(large))).pixels == counting(300 * 784));
}

TEST_CASE("the allocation counter sees the library: a good file takes its own size") {
  const DamagedFile file = images_file();
  const Bytes plain = big_endian({images_magic, 3, 1024, 1024}) + Bytes(3 * mib);
  for (const Bytes& stored : {gzip(plain), plain}) {
    const size_t largest = file.read(stored).largest;
    CHECK(largest >= 3 * mib);
    CHECK(largest < 3 * mib + 65536);
  }
  CHECK(outcome_of([&] { read_idx_images(file.path, 1); }).largest < mib + 65536);
}

TEST_CASE("headers that lie, plain and gzip") {
  struct Row {
    Bytes file;
    std::string plain_part;
    std::string gzip_part = {};  // empty: the same
  };
  const uint32_t huge = 0xffffffff;
  const auto images = [](uint32_t count, uint32_t rows, uint32_t columns) {
    return big_endian({images_magic, count, rows, columns}) + counting(30);
  };
  const auto labels = [](uint32_t count) { return big_endian({labels_magic, count}) + Bytes(5); };
  std::vector<Row> of_images = {
      {good_labels() + Bytes(3), "holds labels (magic 0x00000801), expected images (0x00000803)"},
      {Bytes(46), "magic 0x00000000, expected 0x00000803"},
      {big_endian({0x03080000, 5, 3, 2}) + counting(30), "magic 0x03080000"},
      {big_endian({0x00000802, 5, 3, 2}) + counting(30), "magic 0x00000802"},
      {images(6, 3, 2), "16 + 6 x 3 x 2 = 52 bytes, but there are 46 (6 bytes missing)"},
      {images(4, 3, 2), "= 40 bytes, but there are 46 (6 bytes too many)", "= 40 bytes, but there are more"},
      {good_images() + Bytes(1), "but there are 47 (1 bytes too many)", "but there are more"},
      {images(huge, huge, huge), "images of 4294967295 x 4294967295 pixels"},
      {images(65536, 65536, 1), "= 4294967312 bytes, but there are 46", "more than"},
      {images(1, 65536, 65536), "images of 65536 x 65536 pixels"},
      {images(1, 1025, 1024), "images of 1025 x 1024 pixels, expected at most"},
      {images(huge, 1024, 1024), "= 4503599626321936 bytes, but there are 46", "more than"},
      {images(0, 3, 2), "a dimension is 0 in 16 + 0 x 3 x 2"},
      {images(5, 0, 2), "a dimension is 0 in 16 + 5 x 0 x 2"},
      {images(5, 3, 0), "a dimension is 0 in 16 + 5 x 3 x 0"},
      {big_endian({images_magic, 40000, 1000, 1000}), "= 40000000016 bytes, but there are 16", "more than"},
  };
  std::vector<Row> of_labels = {
      {good_images(), "holds images (magic 0x00000803), expected labels (0x00000801)"},
      {big_endian({0x00000802, 5}) + Bytes(5), "magic 0x00000802, expected 0x00000801"},
      {labels(6), "8 + 6 = 14 bytes, but there are 13 (1 bytes missing)"},
      {labels(4), "8 + 4 = 12 bytes, but there are 13 (1 bytes too many)", "= 12 bytes, but there are more"},
      {labels(huge), "8 + 4294967295 = 4294967303 bytes, but there are 13", "more than"},
      {labels(0), "a dimension is 0 in 8 + 0"},
      {big_endian({labels_magic, 3}) + Bytes{1, 10, 255}, "label 10 of sample 1, expected 0 to 9"},
      {big_endian({labels_magic, 3}) + Bytes{1, 9, 255}, "label 255 of sample 2, expected 0 to 9"},
      {big_endian({short_labels_magic, 1}) + Bytes{0, 10}, "label 10 of sample 0"},
      {big_endian({short_labels_magic, 1}) + Bytes{255, 255}, "label -1 of sample 0"},
      {big_endian({short_labels_magic, 2}) + Bytes{0, 1}, "8 + 2 x 2 = 12 bytes"},
      {big_endian({int_labels_magic, 1}) + Bytes{128, 0, 0, 0}, "label -2147483648"},
      {big_endian({int_labels_magic, huge}) + Bytes{0}, "4294967295 x 4", "more than"},
  };
  for (uint32_t type = 0x09; type <= 0x0e; ++type) {
    const std::string part = "element type 0x0" + std::string(1, "9abcde"[type - 9]);
    of_images.push_back({big_endian({type << 8 | 3, 5, 3, 2}) + counting(30), part});
    if (type != 0x0b && type != 0x0c) of_labels.push_back({big_endian({type << 8 | 1, 5}) + Bytes(5), part});
  }
  const DamagedFile images_in = images_file(), labels_in = labels_file();
  for (const auto& [file, rows] : {std::pair(&images_in, &of_images), std::pair(&labels_in, &of_labels)}) {
    for (const Row& row : *rows) {
      file->check_refused(row.file, row.plain_part);
      file->check_refused(gzip(row.file), row.gzip_part.empty() ? row.plain_part : row.gzip_part);
    }
  }
}

TEST_CASE("plain files cut off at every byte, and with any bit of the header flipped") {
  const DamagedFile images = images_file(), labels = labels_file();
  const Bytes short_labels = big_endian({short_labels_magic, 3}) + Bytes{0, 1, 0, 9, 0, 3};
  struct Row {
    const DamagedFile* file;
    Bytes good;
    size_t header_bytes;
  };
  for (const auto& [file, good, header_bytes] :
       {Row{&images, good_images(), 16}, Row{&labels, good_labels(), 8}, Row{&labels, short_labels, 8}}) {
    file->check_sizes(good, [header_bytes = header_bytes](size_t size) {
      return size < header_bytes ? fmt::format("truncated header, need {} bytes, have {};", header_bytes, size)
                                 : fmt::format("but there are {} (", size);
    });
    file->check_flips(good, header_bytes, [](size_t) { return ""; });
  }
  for (size_t size = 0; size < 16; ++size) {
    images.check_refused(gzip(first_bytes(good_images(), size)),
                         fmt::format("truncated header, need 16 bytes, have {};", size));
  }
}

TEST_CASE("gzip cut off at every byte, and what may follow it") {
  const DamagedFile file = images_file();
  const Bytes packed = gzip(big_endian({images_magic, 40, 10, 10}) + counting(4000));
  for (size_t size = 0; size < packed.size(); ++size) {
    file.check_refused(first_bytes(packed, size), size < 2 ? "truncated header" : "gzip data ends too early, after ");
  }
  file.check_refused(packed + packed, "but there are more");
  CHECK(file.read(packed + Bytes(100000)).code == ExitCode::ok);  // as gunzip has it
}

TEST_CASE("gzip of several members is their contents one after another, as gunzip has it") {
  const DamagedFile file = images_file();
  const Bytes whole = good_images();
  for (size_t at = 0; at <= whole.size(); ++at) {
    const auto border = whole.begin() + static_cast<std::ptrdiff_t>(at);
    CHECK(file.read(gzip({whole.begin(), border}) + gzip({border, whole.end()}) + gzip({})).code == ExitCode::ok);
    CHECK(read_idx_images(file.path).pixels == counting(30));
  }
}

TEST_CASE("gzip with one bit changed anywhere is refused or means the same") {
  const DamagedFile file = images_file();
  const Bytes packed = gzip(good_images());
  const auto part = [&](size_t at) {
    return at + 4 >= packed.size() ? "incorrect length check" : at + 8 >= packed.size() ? "incorrect data check" : "";
  };
  // Accepted where gzip has free bits, which are not in the checks at the end: time, system, padding.
  file.check_flips(packed, packed.size(), part, [&](const Bytes& changed) {
    CHECK(std::equal(packed.end() - 8, packed.end(), changed.end() - 8));
    CHECK(read_idx_images(file.path).pixels == counting(30));
  });
}

TEST_CASE("gzip bombs") {
  const DamagedFile file = images_file();
  const Bytes zeros(64 * mib);
  // Claims 784,016 bytes and unpacks to 64 MiB: seen at the first byte too many. The broken checksum proves that the
  // rest was not unpacked.
  Bytes bomb = gzip(big_endian({images_magic, 1000, 28, 28}) + zeros);
  bomb[bomb.size() - 8] ^= 1;
  file.check_refused(bomb, "but there are more");
  // Claims more than gzip can pack into its size.
  const Bytes claim = gzip(big_endian({images_magic, 1000, 1000, 1000}) + zeros);
  REQUIRE(claim.size() < mib);
  file.check_refused(claim, fmt::format("more than {}", claim.size()));
  // Claims what could be packed into its size, but more than any file may have.
  Bytes noise(5 * mib / 2);
  uint32_t state = 1;
  for (uint8_t& byte : noise) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  const Bytes large = gzip(big_endian({images_magic, 2200, 1000, 1000}) + noise);
  REQUIRE(large.size() * 1032 > size_t{2200000016});
  file.check_refused(large, "or the limit of 2147483648");
}

TEST_CASE("what is not a regular file, or not there, or too large") {
  const TemporaryFolder folder;
  const std::string prefix = (folder / "").string();
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  write_bytes(folder / "sparse", big_endian({images_magic, 6847829, 28, 28}));
  std::error_code error;
  fs::resize_file(folder / "sparse", uint64_t{5} << 30, error);
  struct Row {
    fs::path path;
    ExitCode code;
    const char* part;
  };
  std::vector<Row> rows = {{folder / "", ExitCode::bad_input, "a folder, expected a regular file"},
                           {folder / "fifo", ExitCode::bad_input, "a FIFO, expected a regular file"},
                           {"/dev/zero", ExitCode::bad_input, "a device, expected a regular file"},
                           {folder / "none", ExitCode::io, "none: cannot be opened: No such file"},
                           {folder / std::string(5000, 'x'), ExitCode::io, "cannot be opened: File name too long"},
                           {folder / "two\nlines\x7f", ExitCode::io, "two\\x0alines\\x7f: cannot be opened"}};
  if (error) {
    MESSAGE("skipped: this file system cannot hold a sparse file of 5 GiB: " << error.message());
  } else {
    rows.push_back({folder / "sparse", ExitCode::bad_input, "5368709120 bytes, above the limit of 2147483648"});
  }
  for (const auto& [path, code, part] : rows) {
    check_refused(outcome_of([&, path = path] { read_idx_images(path); }), code,
                  path == "/dev/zero" ? "/dev/zero: " : prefix, part);
  }
}

TEST_CASE("labels of up to 1,000 classes: one, two or four bytes each") {
  const TemporaryFolder folder;
  const auto labels_in = [&](const Bytes& bytes) {
    write_bytes(folder / "labels", bytes);
    return read_idx_labels(folder / "labels", 1000);
  };
  CHECK(labels_in(big_endian({labels_magic, 2}) + Bytes{7, 255}) == std::vector<int32_t>{7, 255});
  CHECK(labels_in(big_endian({short_labels_magic, 2}) + Bytes{0, 7, 3, 231}) == std::vector<int32_t>{7, 999});
  CHECK(labels_in(big_endian({int_labels_magic, 2, 7, 999})) == std::vector<int32_t>{7, 999});
  check_refused(outcome_of([&] {
                  labels_in(big_endian({short_labels_magic, 1}) + Bytes{3, 232});
                }),
                ExitCode::bad_input, (folder / "labels").string(), "label 1000 of sample 0");

  const SampleInfo info = info_for(1200, {2, 2, 1}, 1000);
  write_all(*write_idx(folder / "images", folder / "labels", info), info);
  const Bytes written = read_bytes(folder / "labels");
  CHECK(written.size() == 8 + 2 * 1200);
  CHECK(first_bytes(written, 8) == big_endian({short_labels_magic, 1200}));
  CHECK(outcome_of([&] { write_idx(folder / "x", folder / "y", info_for(1, {1, 1, 3})); }).code == ExitCode::usage);
}

}  // namespace
