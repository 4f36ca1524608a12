// PNG and PGM images: against files that Pillow wrote and files that are put together here, bit by bit.
#include <doctest/doctest.h>
#include <zlib.h>

#include "data/formats/image_file.h"
#include "tests/support/bad_input.h"

namespace {

using namespace hs;
using namespace hs::test;
namespace fs = std::filesystem;

// A part of a PNG file: length, type, bytes, CRC of type and bytes.
Bytes chunk(const std::string& type, const Bytes& bytes) {
  const Bytes inner = bytes_of(type) + bytes;
  const auto crc = static_cast<uint32_t>(crc32(0, inner.data(), static_cast<uInt>(inner.size())));
  return big_endian({static_cast<uint32_t>(bytes.size())}) + inner + big_endian({crc});
}
const Bytes signature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// rows: each with its filter byte in front.
Bytes png(uint32_t width, uint32_t height, uint8_t depth, uint8_t colour, const Bytes& rows, const Bytes& before = {}) {
  uLongf size = compressBound(rows.size());
  Bytes packed(size);
  REQUIRE(compress(packed.data(), &size, rows.data(), rows.size()) == Z_OK);
  packed.resize(size);
  return signature + chunk("IHDR", big_endian({width, height}) + Bytes{depth, colour, 0, 0, 0}) + before +
         chunk("IDAT", packed) + chunk("IEND", {});
}

void check_image(const Bytes& file, const Image& expected) {
  const Image image = decode_image(file, "FILE");
  CHECK(image.shape.text() == expected.shape.text());
  CHECK(image.pixels == expected.pixels);
}

DamagedFile image_file() {
  return DamagedFile([](const fs::path& path) { decode_image(read_bytes(path), path.string()); });
}

// True if PNG can be tested; a build without libpng must say so.
bool with_png() {
  if (can_read_png()) return true;
  MESSAGE("skipped: built without libpng");
  image_file().check_refused(png(1, 1, 8, 0, {0, 5}), "was built without libpng");
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
  check_image(png(2, 1, 8, 0, {0, 100, 200}, chunk("gAMA", big_endian({45455}))), {1, 2, 1, {100, 200}});
  // A transparent entry of the palette adds the fourth channel.
  const Bytes palette = chunk("PLTE", {1, 2, 3, 4, 5, 6}) + chunk("tRNS", {0});
  check_image(png(2, 1, 8, 3, {0, 0, 1}, palette), {1, 2, 4, {1, 2, 3, 0, 4, 5, 6, 255}});
}

TEST_CASE("png: refused") {
  if (!with_png()) return;
  const DamagedFile file = image_file();
  const auto refused = [&](const Bytes& bytes, const std::string& part) { file.check_refused(bytes, part, 2 * mib); };
  refused(png(1, 1, 16, 0, {0, 1, 2}), "16 bits per channel, expected 8");
  refused(png(513, 1, 8, 0, Bytes(514)), "an image of 1 x 513 pixels");
  refused(png(1, 513, 8, 0, Bytes(1026)), "an image of 513 x 1 pixels");
  refused(png(0, 1, 8, 0, {0}), "an image of 1 x 0 pixels");
  refused(png(0x7fffffff, 0x7fffffff, 8, 6, {0}), "an image of 2147483647 x 2147483647 pixels");
  refused(png(2, 2, 8, 0, {0, 1, 2}), "PNG cannot be read: Not enough image data");
  refused(png(1, 1, 8, 0, {0, 1, 0, 2}), "PNG cannot be read: IDAT: ");  // a row more than the image has
  refused(png(2, 1, 8, 0, Bytes(100'000)), "PNG cannot be read: IDAT: ");
  refused(png(1, 1, 8, 5, {0, 1}), "IHDR");
  refused(png(1, 1, 8, 0, {9, 1}), "filter");
  refused(png(2, 1, 8, 3, {0, 0, 1}), "PLTE");
  refused(signature + chunk("IEND", {}), "PNG cannot be read: ");
  refused({}, "starts neither as PNG nor as PGM");
  refused(bytes_of("\xff\xd8\xff\xe0 a JPEG"), "starts neither as PNG nor as PGM");
}

TEST_CASE("png: cut at every byte, and with any bit flipped") {
  if (!with_png()) return;
  Bytes pixels = {0};
  for (int i = 0; i < 64; ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
  const Bytes extra = chunk("gAMA", big_endian({45455})) + chunk("tEXt", bytes_of(std::string("Title\0x", 7)));
  const Bytes good = png(64, 1, 8, 0, pixels, extra);
  const DamagedFile file = image_file();
  for (size_t size = 0; size < good.size(); ++size) {
    file.check_refused(first_bytes(good, size), size < 8 ? "starts neither" : "PNG cannot be read: ");
  }
  file.check_flips(good, good.size(), [](size_t) { return ""; });
}

TEST_CASE("pgm: read and refused") {
  const Bytes pixels = {0, 50, 100, 150, 200, 250};
  const auto pgm = [](const std::string& header, const Bytes& body) { return bytes_of(header) + body; };
  const Bytes good = pgm("P5\n3 2\n255\n", pixels);  // as Pillow writes it
  for (const Bytes& bytes :
       {good, pgm("P5 3\t2\r\n255 ", pixels), pgm("P5\n# 7 8 9\n3 #\n 2\n#x\n#y\n255\n", pixels)}) {
    check_image(bytes, {2, 3, 1, pixels});
  }
  // A first pixel that looks like white space is a pixel.
  check_image(pgm("P5\n1 1\n255\n", {'\n'}), {1, 1, 1, {'\n'}});
  check_image(encode_pgm({2, 3, 1, pixels}), {2, 3, 1, pixels});
  const DamagedFile file = image_file();
  file.check_sizes(good, [](size_t size) {
    return size < 3 ? "starts neither" : size < 11 ? "PGM" : "but the file has ";
  });
  for (size_t bit = 0; bit < 8 * 11; ++bit) {  // of the header: pixels have no checksum
    CAPTURE(bit);
    Bytes changed = good;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    if (file.read(changed).code == ExitCode::ok) {
      check_image(changed, {2, 3, 1, pixels});  // another kind of white space
    } else {
      file.check_refused(changed, bit < 16 ? "starts neither" : "");
    }
  }
  const auto refused = [&](const std::string& header, const std::string& part) {
    file.check_refused(pgm(header, pixels), part);
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

}  // namespace
