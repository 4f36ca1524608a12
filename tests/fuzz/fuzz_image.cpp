// libFuzzer target for PNG, JPEG and PGM files. A PNG is read as it is, and with the checksums of its parts made right;
// a JPEG whole and made to fit. What must hold beyond "no crash": a refusal is hs::Error with bad_input, in one line;
// what is accepted has as many pixels as its shape says, and is the same after it was encoded and decoded again.
#include <zlib.h>

#include "data/formats/fit_image.h"
#include "data/formats/image_file.h"
#include "engine/files/endian.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hs;
using namespace hs::fuzz;

Bytes sealed(std::span<const uint8_t> file) {
  Bytes bytes(file.begin(), file.end());
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = get_big_endian(&bytes[at]);
    if (length > bytes.size() - at - 12) break;
    const auto crc = static_cast<uint32_t>(crc32(0, &bytes[at + 4], static_cast<uInt>(length + 4)));
    put_big_endian(&bytes[at + 8 + length], crc);
    at += 12 + length;
  }
  return bytes;
}

void check_same(const Image& image, const Bytes& file) {
  const Image again = decode_image(file, "FILE");
  expect(again.shape == image.shape, "shape again");
  expect(again.pixels == image.pixels, "pixels again");
}

void check_file(std::span<const uint8_t> file) {
  const auto image = accepted([&] { return decode_image(file, "FILE"); });
  const ImageShape wanted = {3, 2, 1};
  if (const auto fitted = accepted([&] { return decode_to_fit(file, "FILE", wanted); })) {
    expect(fitted->image.shape == wanted, "fitted shape");
    expect(std::ssize(fitted->image.pixels) == wanted.image_bytes(), "fitted pixels");
  }
  if (!image) return;
  expect(image->shape.is_allowed(), "shape");
  expect(std::ssize(image->pixels) == image->shape.image_bytes(), "pixels");
  if (image->shape.channels == 1) check_same(*image, encode_pgm(*image));
  if (can_read_png()) check_same(*image, encode_png(*image));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check_file({data, size});
  if (size > 8 && data[0] == 0x89) check_file(sealed({data, size}));
  return 0;
}
