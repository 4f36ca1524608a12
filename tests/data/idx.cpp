// The IDX reader against files that lie. Every refusal is one line, has the right exit code and costs no memory:
// operator new is replaced here, so that the largest allocation is known in every build.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "data/formats/idx.h"
#include "engine/error.h"
#include "tests/support/temporary_folder.h"

namespace {
std::atomic<size_t> largest_allocation{0};
}

// Not inlined: GCC would see free() meet operator new and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  size_t largest = largest_allocation;
  while (bytes > largest && !largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using namespace hs;
namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

constexpr size_t mib = size_t{1} << 20;
constexpr uint32_t images_magic = 0x00000803;
constexpr uint32_t labels_magic = 0x00000801;

Bytes header(std::initializer_list<uint32_t> words) {
  Bytes bytes;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(word >> shift));
  }
  return bytes;
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Bytes counting(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 1);
  return bytes;
}

Bytes gzip(const Bytes& plain) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<uint8_t*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// 5 images of 3 x 2 and 5 labels.
Bytes good_images() { return header({images_magic, 5, 3, 2}) + counting(30); }
Bytes good_labels() { return header({labels_magic, 5}) + Bytes{0, 9, 3, 1, 9}; }

struct Outcome {
  ExitCode code = ExitCode::ok;
  std::string message;
  size_t largest = 0;  // allocation
};

Outcome outcome_of(const std::function<void()>& action) {
  Outcome outcome;
  largest_allocation = 0;
  try {
    action();
  } catch (const Error& error) {
    outcome = {error.code(), error.what(), 0};
  }
  outcome.largest = largest_allocation;
  return outcome;
}

enum class As { images, labels };

Outcome parse(As as, const Bytes& file) {
  return outcome_of([&] {
    if (as == As::images) {
      parse_idx_images(file, "FILE");
    } else {
      parse_idx_labels(file, "FILE", 10);
    }
  });
}

void check_refused(const Outcome& outcome, ExitCode code, const std::string& name, const std::string& part) {
  CAPTURE(part);
  CHECK(outcome.code == code);
  CHECK_MESSAGE(outcome.message.find(part) != std::string::npos, outcome.message);
  CHECK_MESSAGE(outcome.message.starts_with(name), outcome.message);
  CHECK_MESSAGE(outcome.message.find('\n') == std::string::npos, outcome.message);
  CHECK(outcome.largest <= mib);
}

class TempFolder : public test::TemporaryFolder {
 public:
  fs::path write(const std::string& name, const Bytes& bytes) const {
    std::ofstream file(path / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    REQUIRE(file.good());
    return path / name;
  }
};

TEST_CASE("good files are read, plain and gzip, with and without a limit") {
  const Bytes all = counting(30);
  for (const Bytes& file : {good_images(), gzip(good_images())}) {
    for (const int64_t limit : {0, 1, 4, 5, 6}) {
      CAPTURE(limit);
      const IdxImages images = parse_idx_images(file, "FILE", limit);
      const int64_t count = limit == 0 ? 5 : std::min<int64_t>(limit, 5);
      CHECK(images.total == 5);
      CHECK(images.count == count);
      CHECK(images.rows == 3);
      CHECK(images.columns == 2);
      CHECK(images.pixels == Bytes(all.begin(), all.begin() + count * 6));
    }
  }
  for (const Bytes& file : {good_labels(), gzip(good_labels())}) {
    CHECK(parse_idx_labels(file, "FILE", 10) == std::vector<int32_t>{0, 9, 3, 1, 9});
  }
}

TEST_CASE("the allocation counter sees the library: a good file takes its own size") {
  const Bytes file = header({images_magic, 3, 1024, 1024}) + Bytes(3 * mib);
  const Bytes packed = gzip(file);
  for (const Bytes& stored : {file, packed}) {
    const size_t largest = outcome_of([&] { parse_idx_images(stored, "FILE"); }).largest;
    CHECK(largest >= 3 * mib);
    CHECK(largest < 3 * mib + 65536);
  }
  CHECK(outcome_of([&] { parse_idx_images(file, "FILE", 1); }).largest < mib + 65536);
}

TEST_CASE("a file shorter than its header") {
  for (size_t size = 0; size < 16; ++size) {
    const Bytes all = good_images();
    const Bytes cut(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
    const std::string expected = "truncated header, need 16 bytes, have " + std::to_string(size) + ";";
    check_refused(parse(As::images, cut), ExitCode::bad_input, "FILE: ", expected);
    check_refused(parse(As::images, gzip(cut)), ExitCode::bad_input, "FILE: ", expected);
    if (size >= 8) continue;
    const std::string expected_labels = "truncated header, need 8 bytes, have " + std::to_string(size) + ";";
    check_refused(parse(As::labels, cut), ExitCode::bad_input, "FILE: ", expected_labels);
  }
}

TEST_CASE("headers that lie, plain and gzip") {
  struct Row {
    As as;
    Bytes file;
    const char* plain_part;
    const char* gzip_part;  // nullptr: the same
  };
  const Bytes pixels = counting(30);
  const uint32_t huge = 0xffffffff;
  std::vector<Row> rows = {
      {As::images, good_labels() + Bytes(3), "holds labels (magic 0x00000801), expected images (0x00000803); are", {}},
      {As::labels, good_images(), "holds images (magic 0x00000803), expected labels (0x00000801); are", {}},
      {As::images, Bytes(46), "magic 0x00000000, expected 0x00000803; this is not an IDX file of images", {}},
      {As::images, header({0x03080000, 5, 3, 2}) + pixels, "magic 0x03080000, expected 0x00000803", {}},
      {As::images, header({0x00000802, 5, 3, 2}) + pixels, "magic 0x00000802, expected 0x00000803", {}},
      {As::labels, header({0x00000802, 5}) + Bytes(5), "magic 0x00000802, expected 0x00000801", {}},
      {As::images,
       header({images_magic, 6, 3, 2}) + pixels,
       "16 + 6 x 3 x 2 = 52 bytes, but there are 46 (6 bytes missing)",
       {}},
      {As::images, header({images_magic, 4, 3, 2}) + pixels,
       "16 + 4 x 3 x 2 = 40 bytes, but there are 46 (6 bytes too many)",
       "16 + 4 x 3 x 2 = 40 bytes, but there are more"},
      {As::images, good_images() + Bytes(1), "but there are 47 (1 bytes too many)", "but there are more"},
      {As::labels, header({labels_magic, 6}) + Bytes(5), "8 + 6 = 14 bytes, but there are 13 (1 bytes missing)", {}},
      {As::labels, header({labels_magic, 4}) + Bytes(5), "8 + 4 = 12 bytes, but there are 13 (1 bytes too many)",
       "8 + 4 = 12 bytes, but there are more"},
      {As::labels, header({labels_magic, huge}) + Bytes(5), "8 + 4294967295 = 4294967303 bytes, but there are 13",
       "more than"},
      {As::images, header({images_magic, huge, huge, huge}) + pixels, "images of 4294967295 x 4294967295 pixels", {}},
      {As::images, header({images_magic, 65536, 65536, 1}) + pixels, "= 4294967312 bytes, but there are 46",
       "more than"},
      {As::images, header({images_magic, 1, 65536, 65536}) + pixels, "images of 65536 x 65536 pixels", {}},
      {As::images,
       header({images_magic, 1, 1025, 1024}) + pixels,
       "images of 1025 x 1024 pixels, expected at most",
       {}},
      {As::images, header({images_magic, huge, 1024, 1024}) + pixels, "= 4503599626321936 bytes, but there are 46",
       "more than"},
      {As::images, header({images_magic, 0, 3, 2}), "a dimension is 0 in 16 + 0 x 3 x 2", {}},
      {As::images, header({images_magic, 5, 0, 2}), "a dimension is 0 in 16 + 5 x 0 x 2", {}},
      {As::images, header({images_magic, 5, 3, 0}), "a dimension is 0 in 16 + 5 x 3 x 0", {}},
      {As::labels, header({labels_magic, 0}), "a dimension is 0 in 8 + 0", {}},
      {As::labels, header({labels_magic, 3}) + Bytes{1, 10, 255}, "label 10 of sample 1, expected 0 to 9", {}},
      {As::labels, header({labels_magic, 3}) + Bytes{1, 9, 255}, "label 255 of sample 2, expected 0 to 9", {}},
      // 40 GB claimed by 16 bytes.
      {As::images, header({images_magic, 40000, 1000, 1000}), "= 40000000016 bytes, but there are 16", "more than"},
  };
  for (uint32_t type = 0x09; type <= 0x0e; ++type) {
    rows.push_back({As::images, header({type << 8 | 3, 5, 3, 2}) + pixels, "expected 0x08, unsigned bytes", {}});
    if (type == 0x0b || type == 0x0c) continue;  // which labels may have
    rows.push_back({As::labels, header({type << 8 | 1, 5}) + Bytes(5), "expected 0x08, unsigned bytes", {}});
  }
  for (const Row& row : rows) {
    check_refused(parse(row.as, row.file), ExitCode::bad_input, "FILE: ", row.plain_part);
    check_refused(parse(row.as, gzip(row.file)), ExitCode::bad_input,
                  "FILE: ", row.gzip_part ? row.gzip_part : row.plain_part);
  }
}

TEST_CASE("plain files cut off at every byte, and with any bit of the header flipped") {
  const Bytes wide_labels = header({0x00000b01, 3}) + Bytes{0, 1, 0, 9, 0, 3};
  const auto parse_labels = [](const Bytes& file) { return parse(As::labels, file); };
  const struct {
    Bytes file;
    size_t header_bytes;
    std::function<Outcome(const Bytes&)> parse;
  } kinds[] = {{good_images(), 16, [](const Bytes& file) { return parse(As::images, file); }},
               {good_labels(), 8, parse_labels},
               {wide_labels, 8, parse_labels}};
  for (const auto& [file, header_bytes, parse_file] : kinds) {
    CHECK(parse_file(file).code == ExitCode::ok);
    for (size_t size = 0; size < file.size(); ++size) {
      CAPTURE(size);
      const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
      const std::string missing = "but there are " + std::to_string(size) + " (" + std::to_string(file.size() - size);
      check_refused(parse_file(cut), ExitCode::bad_input, "FILE: ", size < header_bytes ? "truncated header" : missing);
    }
    for (size_t bit = 0; bit < 8 * header_bytes; ++bit) {
      CAPTURE(bit);
      Bytes changed = file;
      changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      check_refused(parse_file(changed), ExitCode::bad_input, "FILE: ", "");
    }
  }
}

// It is not mapped: what was read is what counts.
TEST_CASE("a file that is cut and restored again and again while it is read: all pixels or an error") {
  const TempFolder folder;
  const Bytes good = header({images_magic, 3000, 28, 28}) + counting(3000 * 784);
  const fs::path path = folder.write("images", good);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done) {
      fs::resize_file(path, 100'000);
      fs::resize_file(path, good.size());  // zeros where pixels were
    }
  });
  for (int i = 0; i < 200; ++i) {
    IdxImages images;
    const Outcome outcome = outcome_of([&] { images = read_idx_images(path); });
    if (outcome.code == ExitCode::ok) {
      CHECK(images.pixels.size() == 3000 * 784);
    } else {
      CHECK(outcome.code == ExitCode::bad_input);
      CHECK(outcome.message.starts_with(path.string() + ": "));
    }
  }
  done = true;
  writer.join();
}

TEST_CASE("gzip cut off at every byte is refused") {
  const Bytes packed = gzip(header({images_magic, 40, 10, 10}) + counting(4000));
  REQUIRE(parse(As::images, packed).code == ExitCode::ok);
  for (size_t size = 0; size < packed.size(); ++size) {
    CAPTURE(size);
    const Bytes cut(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
    const char* part = size < 2 ? "truncated header" : "gzip data ends too early, after ";
    check_refused(parse(As::images, cut), ExitCode::bad_input, "FILE: ", part);
  }
}

TEST_CASE("gzip with one byte changed anywhere is refused or means the same") {
  const Bytes packed = gzip(good_images());
  const Bytes pixels = parse_idx_images(packed, "FILE").pixels;
  for (size_t at = 0; at < packed.size(); ++at) {
    CAPTURE(at);
    Bytes changed = packed;
    changed[at] ^= 0x10;
    Bytes read = pixels;
    const Outcome outcome = outcome_of([&] { read = parse_idx_images(changed, "FILE").pixels; });
    CHECK((outcome.code == ExitCode::ok || outcome.code == ExitCode::bad_input));
    CHECK(read == pixels);  // accepted where gzip has free bits: time, system, padding
    if (at + 8 >= packed.size()) {
      check_refused(outcome, ExitCode::bad_input,
                    "FILE: ", at + 4 >= packed.size() ? "incorrect length check" : "incorrect data check");
    }
  }
}

TEST_CASE("nothing may follow the gzip data") {
  const Bytes packed = gzip(good_images());
  check_refused(parse(As::images, packed + Bytes{0}), ExitCode::bad_input, "FILE: ", "1 bytes follow the gzip data");
  check_refused(parse(As::images, packed + packed), ExitCode::bad_input,
                "FILE: ", std::to_string(packed.size()) + " bytes follow the gzip data");
  check_refused(parse(As::images, packed + gzip({})), ExitCode::bad_input, "FILE: ", "bytes follow the gzip data");
  // More than the reader's buffer holds.
  check_refused(parse(As::images, packed + Bytes(100000)), ExitCode::bad_input, "FILE: ", "100000 bytes follow");
}

TEST_CASE("gzip bombs") {
  const Bytes zeros(64 * mib);
  // Claims 784,016 bytes and unpacks to 64 MiB: seen at the first byte too many. The broken checksum proves that the
  // rest was not unpacked.
  Bytes bomb = gzip(header({images_magic, 1000, 28, 28}) + zeros);
  bomb[bomb.size() - 8] ^= 1;
  check_refused(parse(As::images, bomb), ExitCode::bad_input, "FILE: ", "but there are more");
  // Claims more than gzip can pack into its size.
  const Bytes claim = gzip(header({images_magic, 1000, 1000, 1000}) + zeros);
  REQUIRE(claim.size() < mib);
  check_refused(parse(As::images, claim), ExitCode::bad_input, "FILE: ", "more than " + std::to_string(claim.size()));
  // Claims what could be packed into its size, but more than any file may have.
  Bytes noise = counting(5 * mib / 2);
  uint32_t state = 1;
  for (uint8_t& byte : noise) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  const Bytes large = gzip(header({images_magic, 2200, 1000, 1000}) + noise);
  REQUIRE(large.size() * 1032 > size_t{2200000016});
  check_refused(parse(As::images, large), ExitCode::bad_input, "FILE: ", "or the limit of 2147483648");
}

TEST_CASE("files: content decides, not the name") {
  const TempFolder folder;
  CHECK(read_idx_images(folder.write("plain.gz", good_images())).pixels == counting(30));
  CHECK(read_idx_images(folder.write("packed-ubyte", gzip(good_images())), 2).count == 2);
  CHECK(read_idx_labels(folder.write("labels.gz", good_labels()), 10).size() == 5);
  // Longer than one read.
  const Bytes large = header({images_magic, 300, 28, 28}) + counting(300 * 784);
  CHECK(read_idx_images(folder.write("large", large)).pixels == counting(300 * 784));
  CHECK(read_idx_images(folder.write("large.gz", gzip(large))).pixels == counting(300 * 784));
  CHECK(read_idx_images(folder.write("odd name; $(x)\n\xff", good_images())).count == 5);
}

TEST_CASE("what is not a regular file, or not there") {
  const TempFolder folder;
  const auto read = [](const fs::path& path) { return outcome_of([&] { read_idx_images(path); }); };
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  const std::string prefix = (folder / "").string();
  check_refused(read(folder / ""), ExitCode::bad_input, prefix, "a folder, expected a regular file");
  check_refused(read(folder / "fifo"), ExitCode::bad_input, prefix, "a FIFO, expected a regular file");
  check_refused(read("/dev/zero"), ExitCode::bad_input, "/dev/zero: ", "a device, expected a regular file");
  check_refused(read(folder / "none"), ExitCode::io, prefix, "none: cannot be opened: No such file");
  check_refused(read(folder / std::string(5000, 'x')), ExitCode::io, prefix, "cannot be opened: File name too long");
  check_refused(read(folder / "two\nlines\x7f"), ExitCode::io, prefix, "two\\x0alines\\x7f: cannot be opened");
  check_refused(read(folder.write("empty", {})), ExitCode::bad_input, prefix, "empty: truncated header, need 16");
}

TEST_CASE("a sparse file of 5 GiB is refused by its size") {
  const TempFolder folder;
  const fs::path path = folder.write("sparse", header({images_magic, 6847829, 28, 28}));
  std::error_code error;
  fs::resize_file(path, uint64_t{5} << 30, error);
  if (error) {
    MESSAGE("skipped: this file system cannot hold a sparse file of 5 GiB: " << error.message());
    return;
  }
  check_refused(outcome_of([&] { read_idx_images(path); }), ExitCode::bad_input, path.string(),
                "5368709120 bytes, above the limit of 2147483648");
}

}  // namespace
