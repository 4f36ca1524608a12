// One image in a file: PNG (through libpng) or PGM, the binary kind P5 (netpbm.sourceforge.net/doc/pgm.html), detected
// by content. Pixels are returned as they are stored, 8 bits each, without any conversion of colours.
#pragma once

#include <cstdint>
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

// False if the program was built without libpng: PNG is then refused with a message that says so.
bool can_read_png();

// A palette becomes colours, 1 to 4 bits of grey become 8; 16 bits are refused. Throws Error (bad_input) that starts
// with `name`: not such a file, damaged (PNG has a checksum for each part), or a side longer than `max_side`.
Image decode_image(std::span<const uint8_t> file, const std::string& name, int64_t max_side = max_image_side);

// REQUIRES: the image is not empty and has as many pixels as its shape says; for PGM one channel, for PNG
// can_read_png()
std::vector<uint8_t> encode_png(const Image& image);
std::vector<uint8_t> encode_pgm(const Image& image);

}  // namespace hs
