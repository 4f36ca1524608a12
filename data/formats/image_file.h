// One image in a file: PNG (through libpng), JPEG (through libjpeg) or PGM, the binary kind P5
// (netpbm.sourceforge.net/doc/pgm.html), detected by content. Pixels are 8 bits each; those of PNG and PGM are returned
// as they are stored, without any conversion of colours, and those of JPEG as grey or RGB.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/io/sample_source.h"

namespace hs {

inline constexpr uint64_t max_image_file_bytes = uint64_t{1} << 24;

struct Image {
  ImageShape shape;             // channels: 1 grey, 2 grey and alpha, 3 colour, 4 colour and alpha
  std::vector<uint8_t> pixels;  // (rows, columns, channels)
};

// False if the program was built without libpng, or libjpeg: such files are then refused with a message that says so.
bool can_read_png();
bool can_read_jpeg();  // see can_read_png()

// An image as a file stores it. A JPEG may have been decoded at a half, a quarter or an eighth of its size.
struct StoredImage {
  Image image;
  ImageShape full;   // rows and columns in the file; channels as the image's
  int64_t part = 1;  // so many of the file's rows, and columns, are one here; the last one may stand for fewer
  int orientation =
      1;  // EXIF's tag 0x0112, 1 to 8: how the camera was held; 1 is upright, and what a file does not say
};

// A palette becomes colours, 1 to 4 bits of grey become 8; 16 bits are refused. Throws Error (bad_input) that starts
// with `name`: not such a file, damaged (PNG has a checksum for each part, JPEG has none), or a side longer than
// `max_side`. A damaged note of how the camera was held is none. With `smallest`, a JPEG is decoded smaller, in less
// time, if it then has at least so many rows and columns when it is upright.
StoredImage decode_stored(std::span<const uint8_t> file, const std::string& name, int64_t max_side,
                          const std::optional<ImageShape>& smallest);
// The shape of an upright image as a file with this orientation has it, and the other way round.
ImageShape as_stored(const ImageShape& shape, int orientation);
// Turned as `orientation`, of StoredImage, says. REQUIRES: 1 to 8
Image upright(const Image& image, int orientation);
// decode_stored() of all pixels, upright.
Image decode_image(std::span<const uint8_t> file, const std::string& name, int64_t max_side = max_image_side);
// The channels that decode_image() gives, by the file's header alone. Throws as that.
int64_t channels_of(std::span<const uint8_t> file, const std::string& name, int64_t max_side);

// JPEG loses a little, here at the usual quality of 90.
// REQUIRES: the image is not empty and has as many pixels as its shape says; for PGM one channel, for JPEG one or
// three; can_read_png(), can_read_jpeg()
std::vector<uint8_t> encode_png(const Image& image);
std::vector<uint8_t> encode_jpeg(const Image& image);
std::vector<uint8_t> encode_pgm(const Image& image);

}  // namespace hs
