// PNG, JPEG and PGM images: against files that Pillow wrote and files that are put together here, bit by bit.
#include <zlib.h>

#include <array>

#include "data/formats/image_file.h"
#include "tests/support/bad_input.h"

namespace {

using namespace hs;
using namespace hs::test;

// A part of a PNG file: length, type, bytes, CRC of type and bytes.
Bytes chunk(const std::string& type, const Bytes& bytes) {
  const Bytes inner = bytes_of(type) + bytes;
  const auto crc = static_cast<uint32_t>(crc32(0, inner.data(), static_cast<uInt>(inner.size())));
  return big_endian({static_cast<uint32_t>(bytes.size())}) + inner + big_endian({crc});
}
const Bytes signature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// rows: each with its filter byte in front.
Bytes png(uint32_t width, uint32_t height, uint8_t depth, uint8_t colour, const Bytes& rows, const Bytes& before = {}) {
  return signature + chunk("IHDR", big_endian({width, height}) + Bytes{depth, colour, 0, 0, 0}) + before +
         chunk("IDAT", deflated(rows)) + chunk("IEND", {});
}

void check_image(const Bytes& file, const Image& expected) {
  const Image image = decode_image(file, "FILE");
  CHECK(image.shape.text() == expected.shape.text());
  CHECK(image.pixels == expected.pixels);
}

DamagedFile image_file() {
  return DamagedFile([](const fs::path& path) { decode_image(read_bytes(path), path.string()); });
}

// True if such images can be tested; a build without the library must say so.
bool with(bool can_read, const std::string& library, const Bytes& example) {
  if (can_read) return true;
  MESSAGE("skipped: built without ", library);
  image_file().check_refused(example, "was built without " + library);
  return false;
}
bool with_png() { return with(can_read_png(), "libpng", png(1, 1, 8, 0, {0, 5})); }

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
  refused({}, "starts neither as PNG nor as JPEG or PGM");
  refused(bytes_of("GIF89a"), "starts neither as PNG nor as JPEG or PGM");
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

// A JPEG as ITU-T T.81 describes it: a marker, the length with its own two bytes, the bytes.
Bytes segment(uint8_t marker, const Bytes& body) {
  const size_t length = body.size() + 2;
  return Bytes{0xff, marker, static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(length)} + body;
}
// With steps of 8, a block whose one coefficient is d has the level 128 + d everywhere. Huffman codes of a block: 00 as
// the one before, 01 and seven bits a difference of 64 to 127 or -127 to -64; then 0, the end of the block.
const Bytes jpeg_tables = segment(0xdb, Bytes{0} + Bytes(64, 8)) +
                          segment(0xc4, Bytes{0x00, 0, 2} + Bytes(14, 0) + Bytes{0, 7}) +
                          segment(0xc4, Bytes{0x10, 1} + Bytes(15, 0) + Bytes{0});
Bytes blocks(const std::vector<int>& differences, bool with_ends = true) {
  std::string bits;
  for (const int d : differences) {
    bits += d == 0 ? "00" : "01";
    for (int bit = 6; d != 0 && bit >= 0; --bit) bits += ((d < 0 ? d + 127 : d) >> bit & 1) != 0 ? '1' : '0';
    if (with_ends) bits += '0';
  }
  bits.resize((bits.size() + 7) / 8 * 8, '1');
  Bytes bytes;
  for (size_t i = 0; i < bits.size(); i += 8)
    bytes.push_back(static_cast<uint8_t>(std::stoi(bits.substr(i, 8), nullptr, 2)));
  return bytes;
}
Bytes frame(uint8_t marker, int rows, int columns, int components, uint8_t depth = 8) {
  const auto byte = [](int value) { return static_cast<uint8_t>(value); };
  Bytes body = {depth, byte(rows >> 8), byte(rows), byte(columns >> 8), byte(columns), byte(components)};
  for (int c = 1; c <= components; ++c) body = body + Bytes{byte(c), 0x11, 0};
  return segment(marker, body);
}
Bytes scan(int first, int components, uint8_t from, uint8_t to, const Bytes& data) {
  Bytes body = {static_cast<uint8_t>(components)};
  for (int c = first; c < first + components; ++c) body = body + Bytes{static_cast<uint8_t>(c), 0};
  return segment(0xda, body + Bytes{from, to, 0}) + data;
}
const Bytes jpeg_begin = {0xff, 0xd8}, jpeg_end = {0xff, 0xd9};
Bytes jpeg(int rows, int columns, int components, const std::vector<int>& differences, const Bytes& before = {}) {
  return jpeg_begin + before + jpeg_tables + frame(0xc0, rows, columns, components) +
         scan(1, components, 0, 63, blocks(differences)) + jpeg_end;
}
// In the frame of a progressive one: its first coefficients, then the others of `components` in bands of `step`.
Bytes progressive(int components, int step) {
  const std::vector<int> differences = {100, -70, 64};
  Bytes scans = scan(1, components, 0, 0, blocks({differences.begin(), differences.begin() + components}, false));
  for (int c = 1; c <= components; ++c) {
    for (int k = 1; k < 64; k += step)
      scans = scans + scan(c, 1, static_cast<uint8_t>(k), static_cast<uint8_t>(k + step - 1), {0x7f});
  }
  return jpeg_begin + jpeg_tables + frame(0xc2, 8, 8, components) + scans + jpeg_end;
}
const Bytes adobe_rgb = segment(0xee, bytes_of("Adobe") + Bytes{0, 100, 0, 0, 0, 0, 0});

bool with_jpeg() { return with(can_read_jpeg(), "libjpeg", jpeg(8, 8, 1, {100})); }

TEST_CASE("jpeg: grey, colours and progressive, whole and scaled") {
  if (!with_jpeg()) return;
  const auto of = [](std::initializer_list<uint8_t> pixel, size_t count) {
    Bytes all;
    for (size_t i = 0; i < count; ++i) all.insert(all.end(), pixel.begin(), pixel.end());
    return all;
  };
  check_image(jpeg(8, 8, 1, {100}), {{8, 8, 1}, of({228}, 64)});
  check_image(jpeg(3, 5, 1, {-70}), {{3, 5, 1}, of({58}, 15)});
  check_image(jpeg(8, 8, 3, {100, 0, 0}), {{8, 8, 3}, of({228, 228, 228}, 64)});  // Y, Cb and Cr
  check_image(jpeg(8, 8, 3, {100, -70, 64}, adobe_rgb), {{8, 8, 3}, of({228, 58, 192}, 64)});
  check_image(progressive(1, 63), decode_image(jpeg(8, 8, 1, {100}), "FILE"));
  check_image(progressive(3, 21), decode_image(jpeg(8, 8, 3, {100, -70, 64}), "FILE"));
  const Bytes two = jpeg(8, 16, 1, {100, -70});
  for (const auto& [rows, columns, divisor] :
       {std::array<int64_t, 3>{1, 2, 8}, {1, 1, 8}, {1, 3, 4}, {2, 2, 4}, {3, 8, 2}, {5, 2, 1}, {9, 99, 1}}) {
    const Image image = decode_stored(two, "FILE", max_image_side, ImageShape{rows, columns}).image;
    CHECK(image.shape == ImageShape{8 / divisor, 16 / divisor});
    CHECK(image.pixels[0] == 228);
    CHECK(image.pixels.back() == 158);
  }
}

TEST_CASE("jpeg: what is encoded is nearly the same") {
  if (!can_read_jpeg()) return;
  for (const int64_t channels : {1, 3}) {
    Image image{{40, 23, channels}, {}};
    for (int64_t i = 0; i < image.shape.image_bytes(); ++i)
      image.pixels.push_back(static_cast<uint8_t>(50 + i / (23 * channels) * 4));
    const Image again = decode_image(encode_jpeg(image), "FILE");
    REQUIRE(again.shape == image.shape);
    for (size_t i = 0; i < image.pixels.size(); ++i) CHECK(std::abs(again.pixels[i] - image.pixels[i]) <= 4);
  }
  Image noise{{512, 511, 3}, Bytes(size_t{3} * 512 * 511)};  // larger than its pixels
  for (size_t i = 0; i < noise.pixels.size(); ++i) noise.pixels[i] = static_cast<uint8_t>(i * i % 251 * 7919 >> 3);
  CHECK(decode_image(encode_jpeg(noise), "FILE").shape == noise.shape);
}

TEST_CASE("jpeg: refused") {
  if (!with_jpeg()) return;
  const DamagedFile file = image_file();
  const auto refused = [&](const Bytes& bytes, const std::string& part) { file.check_refused(bytes, part); };
  refused(jpeg(8, 8, 4, {100, 0, 0, 0}), "JPEG of 4 components (CMYK has 4), expected 1 (grey) or 3 (colour)");
  refused(jpeg(8, 8, 2, {100, 0}), "JPEG of 2 components");
  refused(jpeg(0, 8, 1, {100}), "JPEG cannot be read: Empty");
  refused(jpeg(8, 0, 1, {100}), "JPEG cannot be read: Empty");
  refused(jpeg(513, 8, 1, {100}), "an image of 513 x 8 pixels, expected 1 x 1 to 512 x 512");
  refused(jpeg(8, 65500, 3, {100}), "an image of 8 x 65500 pixels");
  refused(jpeg(65535, 65535, 3, {100}), "JPEG cannot be read: ");
  refused(jpeg(8, 16, 1, {100}), "JPEG cannot be read: Corrupt");  // a block of two
  refused(jpeg_begin + jpeg_tables + frame(0xc0, 8, 8, 1, 12) + scan(1, 1, 0, 63, {0x7f}) + jpeg_end, "precision");
  refused(jpeg_begin + jpeg_end, "JPEG cannot be read: ");
  refused(jpeg_begin + frame(0xc0, 8, 8, 1) + scan(1, 1, 0, 63, {0x7f}) + jpeg_end, "JPEG cannot be read: ");
  refused(jpeg(8, 8, 1, {100}, adobe_rgb + Bytes(9, 5)), "JPEG cannot be read: Corrupt JPEG data: 9 extraneous bytes");
  refused(progressive(3, 1), "JPEG cannot be read: more than 100 scans");
  for (const Bytes& good : {jpeg(8, 8, 1, {100}), jpeg(8, 8, 3, {100, -70, 64}, adobe_rgb), progressive(1, 63)}) {
    for (size_t size = 0; size < good.size(); ++size) {
      refused(first_bytes(good, size), size < 3 ? "starts neither" : "JPEG cannot be read: ");
    }
    // There is no checksum: it may be another picture.
    file.check_flips(
        good, good.size(), [](size_t) { return ""; }, [](const Bytes&) {});
  }
}

// EXIF's note of how the camera was held: a directory of one entry, in both orders of bytes.
Bytes note(uint8_t orientation, bool little = true) {
  return little ? Bytes{'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0}
                : Bytes{'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0, 0, 0, 0, 0};
}
Bytes with_note(const Bytes& jpeg, const Bytes& note) {
  return jpeg_begin + segment(0xe1, bytes_of("http://ns.adobe.com/xap/1.0/")) +
         segment(0xe1, bytes_of(std::string("Exif\0\0", 6)) + note) + Bytes{jpeg.begin() + 2, jpeg.end()};
}

TEST_CASE("how the camera was held: eight ways, and notes that say nothing") {
  if (!with_png() || !with_jpeg()) return;
  const Bytes rows = {0, 1, 2, 3, 0, 4, 5, 6}, grey = jpeg(8, 16, 1, {100, -70});
  const auto tagged = [&](const Bytes& exif) { return png(3, 2, 8, 0, rows, chunk("eXIf", exif)); };
  const Bytes turned[] = {{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1}, {4, 5, 6, 1, 2, 3},
                          {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3}, {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};
  const Image wide = decode_image(grey, "FILE");
  for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
    const ImageShape shape = orientation > 4 ? ImageShape{3, 2, 1} : ImageShape{2, 3, 1};
    for (const bool little : {false, true}) {
      check_image(tagged(note(orientation, little)), {shape, turned[orientation - 1]});
      check_image(with_note(grey, note(orientation, little)), upright(wide, orientation));
    }
  }
  for (const uint8_t none : {0, 9}) check_image(tagged(note(none)), {{2, 3, 1}, turned[0]});
  // Damaged notes: the picture is there, turned or not.
  const Bytes good = note(6);
  for (size_t size = 0; size <= good.size(); ++size) {
    const Image image = decode_image(with_note(grey, first_bytes(good, size)), "FILE");
    CHECK(image.shape == (size < 19 ? wide.shape : ImageShape{16, 8, 1}));
  }
  for (size_t at = 0; at < good.size(); ++at) {
    Bytes changed = good;
    for (const int value : {0, 1, 0x7f, 0xff}) {
      changed[at] = static_cast<uint8_t>(value);
      CHECK(decode_image(with_note(grey, changed), "FILE").pixels.size() == 128);
      if (at > 3) CHECK(decode_image(tagged(changed), "FILE").pixels.size() == 6);
    }
  }
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
  // Of the header: pixels have no checksum. What is read has another kind of white space.
  file.check_flips(
      good, 11, [](size_t at) { return at < 2 ? "starts neither" : ""; },
      [&](const Bytes& changed) {
        check_image(changed, {2, 3, 1, pixels});
      });
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
