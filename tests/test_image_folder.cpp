// Folders of PNG and PGM images: against files that Pillow wrote and files that are put together here, bit by bit, and
// folders that are not what they should be. And how a folder is recognised as a data set, whatever its format.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <set>

#include "data/idx.h"
#include "data/image_file.h"
#include "data/image_folder.h"
#include "data/open_dataset.h"
#include "data/record_file.h"
#include "data/tfrecord.h"
#include "tests/support/bad_input.h"
#include "tests/support/sample_sets.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}
Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// Not insert(): GCC 12 warns of it for short vectors.
void append(Bytes& to, const Bytes& more) {
  for (const uint8_t byte : more) to.push_back(byte);
}
Bytes big_endian(uint32_t word) {
  return {static_cast<uint8_t>(word >> 24), static_cast<uint8_t>(word >> 16), static_cast<uint8_t>(word >> 8),
          static_cast<uint8_t>(word)};
}

// A part of a PNG file: length, type, bytes, CRC of type and bytes.
Bytes chunk(const std::string& type, const Bytes& bytes) {
  Bytes inner = bytes_of(type);
  append(inner, bytes);
  Bytes all = big_endian(static_cast<uint32_t>(bytes.size()));
  append(all, inner);
  append(all, big_endian(static_cast<uint32_t>(crc32(0, inner.data(), static_cast<uInt>(inner.size())))));
  return all;
}
const Bytes signature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// rows: each with its filter byte in front.
Bytes png(uint32_t width, uint32_t height, uint8_t depth, uint8_t colour, const Bytes& rows, const Bytes& before = {}) {
  Bytes header = big_endian(width);
  append(header, big_endian(height));
  append(header, {depth, colour, 0, 0, 0});
  uLongf size = compressBound(rows.size());
  Bytes packed(size);
  REQUIRE(compress(packed.data(), &size, rows.data(), rows.size()) == Z_OK);
  packed.resize(size);
  Bytes file = signature;
  append(file, chunk("IHDR", header));
  append(file, before);
  append(file, chunk("IDAT", packed));
  append(file, chunk("IEND", {}));
  return file;
}

struct Shaped {
  int64_t rows, columns, channels;
  Bytes pixels;
};
void check_image(const Bytes& file, const Shaped& expected) {
  const Image image = decode_image(file, "FILE");
  CHECK(image.rows == expected.rows);
  CHECK(image.columns == expected.columns);
  CHECK(image.channels == expected.channels);
  CHECK(image.pixels == expected.pixels);
}

Outcome decode(const Bytes& file) {
  return outcome_of([&] { decode_image(file, "FILE"); });
}

// True if PNG can be tested; a build without libpng must say so.
bool with_png() {
  if (can_read_png()) return true;
  MESSAGE("skipped: built without libpng");
  check_refused(decode(png(1, 1, 8, 0, {0, 5})), ExitCode::bad_input, "FILE: ", "was built without libpng");
  return false;
}

const Bytes grey_png = from_hex(
    "89504e470d0a1a0a0000000d4948445200000003000000020800000000b81f39c60000001049444154789c63643032629876e21700068202be"
    "2e345b9d0000000049454e44ae426082");

TEST_CASE("png: what Pillow wrote") {
  if (!with_png()) return;
  check_image(grey_png, {2, 3, 1, {0, 50, 100, 150, 200, 250}});
  check_image(
      from_hex("89504e470d0a1a0a0000000d4948445200000002000000020802000000fdd49a730000001649444154789c636410d5b2"
               "b7b767a89bbc62efa5e70016c0052df9217e840000000049454e44ae426082"),
      {2, 2, 3, {0, 21, 42, 63, 84, 105, 126, 147, 168, 189, 210, 231}});
  // A palette of three colours, 2 bits for a pixel.
  check_image(
      from_hex("89504e470d0a1a0a0000000d4948445200000003000000010203000000668efc2700000009504c54450a141e28323c46"
               "505a16ac84740000000a49444154789c6368010000860085bcf5cdd60000000049454e44ae426082"),
      {1, 3, 3, {70, 80, 90, 10, 20, 30, 40, 50, 60}});
}

TEST_CASE("png: every kind of pixel, as the format describes them") {
  if (!with_png()) return;
  check_image(png(3, 1, 1, 0, {0, 0b10100000}), {1, 3, 1, {255, 0, 255}});
  check_image(png(3, 1, 4, 0, {0, 0x0f, 0x30}), {1, 3, 1, {0, 255, 51}});
  check_image(png(2, 1, 8, 4, {0, 9, 8, 7, 6}), {1, 2, 2, {9, 8, 7, 6}});
  check_image(png(1, 2, 8, 6, {0, 1, 2, 3, 4, 0, 5, 6, 7, 8}), {2, 1, 4, {1, 2, 3, 4, 5, 6, 7, 8}});
  check_image(png(2, 2, 8, 0, {1, 10, 5, 2, 1, 1}), {2, 2, 1, {10, 15, 11, 16}});  // filters: left, above
  // Colours are not converted, whatever the file says of them.
  check_image(png(2, 1, 8, 0, {0, 100, 200}, chunk("gAMA", big_endian(45455))), {1, 2, 1, {100, 200}});
  // A transparent entry of the palette adds the fourth channel.
  Bytes palette = chunk("PLTE", {1, 2, 3, 4, 5, 6});
  append(palette, chunk("tRNS", {0}));
  check_image(png(2, 1, 8, 3, {0, 0, 1}, palette), {1, 2, 4, {1, 2, 3, 0, 4, 5, 6, 255}});
}

TEST_CASE("png: refused") {
  if (!with_png()) return;
  const auto refused = [](const Bytes& file, const std::string& part) {
    check_refused(decode(file), ExitCode::bad_input, "FILE: ", part, 2 * mib);
  };
  refused(png(1, 1, 16, 0, {0, 1, 2}), "16 bits per channel, expected 8");
  refused(png(513, 1, 8, 0, Bytes(514)), "an image of 1 x 513 pixels");
  refused(png(1, 513, 8, 0, Bytes(1026)), "an image of 513 x 1 pixels");
  refused(png(0, 1, 8, 0, {0}), "an image of 1 x 0 pixels");
  refused(png(0x7fffffff, 0x7fffffff, 8, 6, {0}), "an image of 2147483647 x 2147483647 pixels");
  refused(png(2, 2, 8, 0, {0, 1, 2}), "PNG cannot be read: Not enough image data");
  refused(png(1, 1, 8, 5, {0, 1}), "IHDR");
  refused(png(1, 1, 8, 0, {9, 1}), "filter");
  refused(png(2, 1, 8, 3, {0, 0, 1}), "PLTE");
  Bytes no_image = signature;
  append(no_image, chunk("IEND", {}));
  refused(no_image, "PNG cannot be read: ");
  refused({}, "starts neither as PNG nor as PGM");
  refused(bytes_of("\xff\xd8\xff\xe0 a JPEG"), "starts neither as PNG nor as PGM");
}

TEST_CASE("png: cut at every byte, and with any bit flipped") {
  if (!with_png()) return;
  Bytes pixels = {0};
  for (int i = 0; i < 64; ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
  Bytes extra = chunk("gAMA", big_endian(45455));
  append(extra, chunk("tEXt", bytes_of(std::string("Title\0x", 7))));
  const Bytes file = png(64, 1, 8, 0, pixels, extra);
  REQUIRE(decode(file).code == ExitCode::ok);
  for (size_t size = 0; size < file.size(); ++size) {
    CAPTURE(size);
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    check_refused(decode(cut), ExitCode::bad_input, "FILE: ", size < 8 ? "starts neither" : "PNG cannot be read: ");
  }
  for (size_t bit = 0; bit < 8 * file.size(); ++bit) {
    CAPTURE(bit);
    Bytes changed = file;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    check_refused(decode(changed), ExitCode::bad_input, "FILE: ", "");
  }
}

TEST_CASE("pgm: read and refused") {
  const Bytes pixels = {0, 50, 100, 150, 200, 250};
  const auto pgm = [&](const std::string& header, const Bytes& body) {
    Bytes file = bytes_of(header);
    append(file, body);
    return file;
  };
  const Bytes good = pgm("P5\n3 2\n255\n", pixels);  // as Pillow writes it
  for (const Bytes& file : {good, pgm("P5 3\t2\r\n255 ", pixels), pgm("P5\n# 7 8 9\n3 #\n 2\n#x\n#y\n255\n", pixels)}) {
    check_image(file, {2, 3, 1, pixels});
  }
  // A first pixel that looks like white space is a pixel.
  check_image(pgm("P5\n1 1\n255\n", {'\n'}), {1, 1, 1, {'\n'}});
  check_image(encode_pgm({2, 3, 1, pixels}), {2, 3, 1, pixels});
  for (size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    check_refused(decode(cut), ExitCode::bad_input, "FILE: ",
                  size < 3    ? "starts neither"
                  : size < 11 ? "PGM"
                              : "but the file has ");
  }
  const auto refused = [&](const std::string& header, const std::string& part) {
    check_refused(decode(pgm(header, pixels)), ExitCode::bad_input, "FILE: ", part);
  };
  refused("P5\n3 2\n65535\n", "PGM with a maximum of 65535, expected 255");
  refused("P5\n3 2\n1\n", "PGM with a maximum of 1");
  refused("P5\n3 3\n255\n", "PGM of 3 x 3 pixels");
  refused("P5\n2 2\n255\n", "PGM of 2 x 2 pixels behind a header of 11 bytes, but the file has 17 bytes");
  refused("P5\n0 2\n255\n", "an image of 2 x 0 pixels");
  refused("P5\n513 1\n255\n", "an image of 1 x 513 pixels");
  refused("P5\n99999999999999999999 99999999999999999999\n255\n", "pixels, expected 1 x 1 to 512 x 512");
  refused("P5\n-3 2\n255\n", "PGM with a damaged header");
  refused("P5\n3 2\n255", "PGM with a damaged header");
  refused("P5\n3x2\n255\n", "PGM with a damaged header");
  refused("P6\n3 2\n255\n", "starts neither");
}

// A folder of three classes, with the images named in no particular order.
Bytes grey_pgm(uint8_t value, int columns = 2) {
  Bytes file = bytes_of(fmt::format("P5\n{} 1\n255\n", columns));
  file.resize(file.size() + static_cast<size_t>(columns), value);
  return file;
}
void write_classes(const fs::path& folder) {
  write_bytes(folder / "cat" / "2.PGM", grey_pgm(2));
  write_bytes(folder / "cat" / "10.pgm", grey_pgm(1));
  write_bytes(folder / "Dog" / "x.pgm", grey_pgm(3));
  fs::create_directories(folder / "emu");
  write_bytes(folder / "README", bytes_of("not a class"));
  write_bytes(folder / ".git" / "x.pgm", grey_pgm(9));
  write_bytes(folder / "cat" / ".DS_Store", {});
}

TEST_CASE("folder: sorted names give labels and order") {
  const TemporaryFolder folder;
  write_classes(folder.path);
  const auto source = open_image_folder(folder.path, {"pets", {0.25f, 0.5f}});
  CHECK(same_shape(source->info(), info_for(3, {1, 2, 1}, 3)));
  CHECK(source->info().name == "pets");
  CHECK(source->info().scale.deviation == 0.5f);
  CHECK(class_names(folder.path) == std::vector<std::string>{"Dog", "cat", "emu"});
  const int32_t labels[] = {0, 1, 1};
  const uint8_t values[] = {3, 1, 2};
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(source->label(i) == labels[i]);
    CHECK(read_image(*source, i) == Bytes(2, values[i]));
  }
}

TEST_CASE("folder: what is wrong in it is named") {
  const auto refused_after = [](const std::function<void(const fs::path&)>& spoil, ExitCode code,
                                const std::string& part) {
    const TemporaryFolder folder;
    write_classes(folder.path);
    spoil(folder.path);
    check_refused(outcome_of([&] {
                    const auto source = open_image_folder(folder.path);
                    for (int64_t i = 0; i < source->info().count; ++i) read_image(*source, i);
                  }),
                  code, folder.path.string(), part);
  };
  refused_after([](const fs::path& f) { write_bytes(f / "cat" / "3.pgm", grey_pgm(1, 3)); }, ExitCode::bad_input,
                "cat/3.pgm: 1 x 3 x 1, but the first image is 1 x 2 x 1; expected one size (sample 3)");
  refused_after([](const fs::path& f) { write_bytes(f / "cat" / "3.jpg", {}); }, ExitCode::bad_input,
                "cat/3.jpg: expected files named .png or .pgm");
  refused_after([](const fs::path& f) { write_bytes(f / "Dog" / "sub" / "a.pgm", {}); }, ExitCode::bad_input,
                "Dog/sub: expected files named .png or .pgm");
  refused_after([](const fs::path& f) { write_bytes(f / "cat" / "2.PGM", {}); }, ExitCode::bad_input,
                "cat/2.PGM: starts neither as PNG nor as PGM (P5), expected one of them (sample 2)");
  refused_after([](const fs::path& f) { write_bytes(f / "Dog" / "x.pgm", {}); }, ExitCode::bad_input,
                "Dog/x.pgm: start");
  refused_after([](const fs::path& f) { fs::create_directory(f / "cat" / "4.png"); }, ExitCode::bad_input,
                "cat/4.png: a folder, expected a regular file (sample 3)");
  refused_after([](const fs::path& f) { fs::create_symlink("nowhere", f / "cat" / "4.png"); }, ExitCode::io,
                "cat/4.png: cannot be opened");
  refused_after([](const fs::path& f) { fs::remove_all(f / "cat"), fs::remove_all(f / "Dog"); }, ExitCode::bad_input,
                "1 folders of classes, but no .png or .pgm file in them");
  refused_after(
      [](const fs::path& f) {
        for (const char* name : {"cat", "Dog", "emu"}) fs::remove_all(f / name);
      },
      ExitCode::bad_input, "has no folders in it");
  refused_after([](const fs::path& f) { fs::remove_all(f); }, ExitCode::io, "cannot be read");
  refused_after(
      [](const fs::path& f) {
        for (int i = 0; i < 998; ++i) fs::create_directory(f / std::to_string(i));
      },
      ExitCode::bad_input, "1001 folders, expected one for each of at most 1000 classes");
  refused_after([](const fs::path& f) { fs::resize_file(f / "Dog" / "x.pgm", uint64_t{5} << 30); }, ExitCode::bad_input,
                "Dog/x.pgm: 5368709120 bytes, above the limit of 16777216");
}

TEST_CASE("folder: an image that vanishes or changes while the set is open") {
  const TemporaryFolder folder;
  write_classes(folder.path);
  const auto source = open_image_folder(folder.path);
  fs::resize_file(folder / "cat" / "10.pgm", 12);
  check_refused(outcome_of([&] { read_image(*source, 1); }), ExitCode::bad_input, folder.path.string(),
                "but the file has 12 bytes (sample 1)");
  fs::remove(folder / "cat" / "10.pgm");
  check_refused(outcome_of([&] { read_image(*source, 1); }), ExitCode::io, folder.path.string(), "(sample 1)");
  CHECK(read_image(*source, 2) == Bytes(2, 2));
}

TEST_CASE("folder: round trip of images of every kind; the order is by class") {
  for (const ImageFormat format : {ImageFormat::png, ImageFormat::pgm}) {
    for (const int64_t channels : {1, 2, 3, 4}) {
      if (format == ImageFormat::pgm && channels > 1) continue;
      if (format == ImageFormat::png && !can_read_png()) continue;
      const TemporaryFolder folder;
      const SampleInfo info = info_for(20, {17, 5, channels}, 12);
      write_all(*write_image_folder(folder / "a", info, format), info);
      CHECK(folder.names() == std::set<std::string>{"a"});
      const auto source = open_image_folder(folder / "a");
      CHECK(same_shape(source->info(), info));
      std::vector<int64_t> order(20);
      for (int64_t i = 0; i < 20; ++i) order[static_cast<size_t>(i)] = i;
      std::ranges::stable_sort(order, {}, [&](int64_t i) { return label_of(info, i); });
      for (int64_t i = 0; i < 20; ++i) {
        const int64_t written = order[static_cast<size_t>(i)];
        CHECK(source->label(i) == label_of(info, written));
        CHECK(read_image(*source, i) == image_of(info, written));
      }
    }
  }
}

TEST_CASE("folder: nothing is left if writing fails, and nothing is overwritten") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(3);
  {
    const auto writer = write_image_folder(folder / "a", info, ImageFormat::pgm);
    writer->add(image_of(info, 0).data(), 0);
    CHECK(!folder.names().contains("a"));
  }
  CHECK(folder.names().empty());
  CHECK(outcome_of([&] { write_image_folder(folder / "no" / "a", info, ImageFormat::pgm); }).code == ExitCode::io);
  CHECK(outcome_of([&] {
          write_image_folder(folder / "a", info_for(3, {1, 1, 3}), ImageFormat::pgm);
        }).code == ExitCode::usage);
  write_bytes(folder / "a" / "x", {1});
  check_refused(outcome_of([&] { write_image_folder(folder / "a", info, ImageFormat::pgm); }), ExitCode::io,
                (folder / "a").string(), "is there already");
  CHECK(folder.names() == std::set<std::string>{"a"});
}

// The same set in every format that a folder can hold: 12 training and 5 test samples of 4 classes.
const SampleInfo train_info = info_for(12, {4, 4, 1}, 4), test_info = info_for(5, {4, 4, 1}, 4);
void write_as(const std::string& format, const fs::path& folder) {
  fs::create_directories(folder);
  for (const bool training : {true, false}) {
    const SampleInfo& info = training ? train_info : test_info;
    const fs::path base = folder / (training ? "train" : "test"), idx = folder / (training ? "train" : "t10k");
    const auto with = [](fs::path path, const char* suffix) { return path += suffix; };
    std::unique_ptr<SampleWriter> writer;
    if (format == "idx") writer = write_idx(with(idx, "-images-idx3-ubyte"), with(idx, "-labels.idx1-ubyte"), info);
    if (format == "record") writer = write_records(with(base, ".record"), info, {.shards = 2});
    if (format == "tfrecord") writer = write_tfrecords(with(base, ".tfrecord"), info, 2);
    if (format == "images") writer = write_image_folder(base, info, ImageFormat::pgm);
    write_all(*writer, info);
  }
}
const std::vector<std::string> formats = {"idx", "record", "tfrecord", "images"};

TEST_CASE("data sets: the files of a folder tell the format, and every format gives the same samples") {
  for (const std::string& format : formats) {
    CAPTURE(format);
    const TemporaryFolder folder;
    write_as(format, folder / "some");
    for (const fs::path& path : {folder / "some", folder / "some" / ""}) {
      const FoundDataset found = find_dataset(path.string());
      CHECK(name(found.format) == format);
      for (const Part part : {Part::train, Part::test}) {
        const SampleInfo& info = part == Part::train ? train_info : test_info;
        const auto source = open_dataset(found, part);
        CHECK(same_shape(source->info(), info));
        CHECK(source->info().name == (format == "record" ? "numbered" : "some"));
        if (format != "images") CHECK(first_wrong(*source, info) == -1);
      }
    }
    const DatasetPair pair = load_dataset((folder / "some").string(), 0, 2);
    CHECK(pair.train.count == 12);
    CHECK(pair.test.count == 2);
    CHECK(pair.test.classes == 4);
    CHECK(pair.train.images.size() == 12 * 16);
    CHECK(!pair.train.synthetic);
    if (format != "images")
      CHECK(std::equal(pair.test.images.begin(), pair.test.images.begin() + 16, image_of(test_info, 0).begin()));
    const auto refused = [&](int64_t train, int64_t test) {
      return outcome_of([&] { load_dataset((folder / "some").string(), train, test); }).message;
    };
    CHECK(refused(13, 0) == "--train 13: the set has 12 samples");
    CHECK(refused(0, -1) == "--test -1: expected 0 (all samples) or more");
    // Two formats in one folder.
    write_as(format == "idx" ? "record" : "idx", folder / "some");
    check_refused(outcome_of([&] { find_dataset((folder / "some").string()); }), ExitCode::bad_input,
                  (folder / "some").string(), "files of two formats, ");
  }
}

TEST_CASE("data sets: parts that are not there, single files, and class folders without parts") {
  const TemporaryFolder folder;
  write_as("record", folder / "a");
  for (const char* file : {"train.record", "train.record-00001-of-00002"}) {
    const FoundDataset found = find_dataset((folder / "a" / file).string());
    CHECK(found.has(Part::train));
    CHECK(!found.has(Part::test));
    CHECK(first_wrong(*open_dataset(found, Part::train), train_info) == -1);
    CHECK(outcome_of([&] { open_dataset(found, Part::test); }).code == ExitCode::io);
  }
  write_classes(folder / "pets");
  const FoundDataset pets = find_dataset((folder / "pets").string());
  CHECK(pets.format == DataFormat::images);
  CHECK(!pets.has(Part::test));
  CHECK(open_dataset(pets, Part::train)->info().count == 3);

  write_as("images", folder / "b");
  fs::rename(folder / "b" / "test" / "002", folder / "b" / "test" / "2");
  check_refused(outcome_of([&] { open_dataset((folder / "b").string(), Part::train); }), ExitCode::bad_input,
                (folder / "b").string(), "has the class 002 where");

  write_as("idx", folder / "c");
  fs::remove(folder / "c" / "t10k-labels.idx1-ubyte");
  check_refused(outcome_of([&] { open_dataset((folder / "c").string(), Part::test); }), ExitCode::io,
                (folder / "c").string(), "t10k-labels-idx1-ubyte not found");
  CHECK(open_dataset((folder / "c").string(), Part::train)->info().count == 12);

  fs::create_directory(folder / "empty");
  check_refused(outcome_of([&] { find_dataset((folder / "empty").string()); }), ExitCode::io,
                (folder / "empty").string(), "no data set in this folder");
  CHECK(outcome_of([&] { find_dataset((folder / "none").string()); }).code == ExitCode::io);
  write_bytes(folder / "file.bin", {});
  CHECK(outcome_of([&] { find_dataset((folder / "file.bin").string()); }).code == ExitCode::bad_input);
}

TEST_CASE("data sets: names are looked for in the usual places, and bring their pixel scale") {
  const TemporaryFolder folder;
  const char* before = std::getenv("HALFSTEP_DATA");
  const std::string data = before != nullptr ? before : "";
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  setenv("HALFSTEP_DATA", folder.path.c_str(), 1);
  setenv("HOME", (folder / "home").c_str(), 1);
  check_refused(outcome_of([] { find_dataset("fashion_mnist"); }), ExitCode::io, "fashion_mnist: not found in ",
                "`data/get fashion_mnist` downloads it");
  write_as("idx", folder / "home" / ".cache" / "halfstep" / "fashion_mnist");
  const auto source = open_dataset("fashion_mnist", Part::test);
  CHECK(source->info().name == "fashion_mnist");
  CHECK(source->info().scale.mean == 0.2860f);
  CHECK(source->info().classes == 10);
  write_as("tfrecord", folder / "fashion_mnist");
  CHECK(find_dataset("fashion_mnist").format == DataFormat::tfrecord);
  CHECK(open_dataset("fashion_mnist", Part::test)->info().scale.mean == 0.2860f);
  setenv("HOME", home.c_str(), 1);
  if (before != nullptr) {
    setenv("HALFSTEP_DATA", data.c_str(), 1);
  } else {
    unsetenv("HALFSTEP_DATA");
  }
  CHECK(find_dataset("synthetic").has(Part::test));
}

TEST_CASE("idx: labels of up to 1,000 classes") {
  const TemporaryFolder folder;
  const SampleInfo info = info_for(1200, {2, 2, 1}, 1000);
  write_all(*write_idx(folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte", info), info);
  const Bytes labels = read_bytes(folder / "train-labels-idx1-ubyte");
  CHECK(labels.size() == 8 + 2 * 1200);
  CHECK(labels[2] == 0x0b);
  const auto source = open_dataset(folder.path.string(), Part::train);
  CHECK(same_shape(source->info(), info));
  CHECK(first_wrong(*source, info) == -1);

  const auto parse = [](const Bytes& bytes) {
    std::vector<int32_t> values;
    const Outcome outcome = outcome_of([&] { values = parse_idx_wide_labels(bytes, "FILE", 1000); });
    return std::make_pair(outcome, values);
  };
  CHECK(parse({0, 0, 8, 1, 0, 0, 0, 2, 7, 255}).second == std::vector<int32_t>{7, 255});
  CHECK(parse({0, 0, 0x0b, 1, 0, 0, 0, 2, 0, 7, 3, 231}).second == std::vector<int32_t>{7, 999});
  CHECK(parse({0, 0, 0x0c, 1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 3, 231}).second == std::vector<int32_t>{7, 999});
  check_refused(parse({0, 0, 0x0b, 1, 0, 0, 0, 1, 3, 232}).first, ExitCode::bad_input,
                "FILE: ", "label 1000 of sample 0");
  check_refused(parse({0, 0, 0x0b, 1, 0, 0, 0, 1, 255, 255}).first, ExitCode::bad_input,
                "FILE: ", "label -1 of sample 0");
  check_refused(parse({0, 0, 0x0c, 1, 0, 0, 0, 1, 128, 0, 0, 0}).first, ExitCode::bad_input,
                "FILE: ", "label -2147483648");
  check_refused(parse({0, 0, 0x0b, 1, 0, 0, 0, 2, 0, 1}).first, ExitCode::bad_input, "FILE: ", "8 + 2 x 2 = 12 bytes");
  check_refused(parse({0, 0, 0x0c, 1, 255, 255, 255, 255, 0}).first, ExitCode::bad_input, "FILE: ", "4294967295 x 4");
  check_refused(parse({0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0}).first, ExitCode::bad_input,
                "FILE: ", "element type 0x0d");
  CHECK(outcome_of([&] { write_idx(folder / "x", folder / "y", info_for(1, {1, 1, 3})); }).code == ExitCode::usage);
}

}  // namespace
