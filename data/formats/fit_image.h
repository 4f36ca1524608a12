// Any image as the input of a model: grey or colour as the model has it, and its size.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/formats/image_file.h"

namespace hs {

inline constexpr int64_t largest_side_to_fit = 4096;  // of an image that is resized: 64 MiB of pixels

struct FittedImage {
  Image image;
  std::vector<std::string> changes;  // what was done, for the user: "resized from 100 x 80 to 28 x 28"
};

// Transparent pixels are put on white if what can be seen is dark, as drawing programs save ink, otherwise on black.
// Colour becomes grey by its luma (ITU-R BT.601), grey becomes equal colours. A pixel of another size is the mean of
// what it covers, weighted by area; the ratio of the sides is not kept.
// REQUIRES: `wanted` has 1 or 3 channels
FittedImage fit_image(const Image& image, const ImageShape& wanted);
// The same of an image as a file stores it, upright: the one way from files to samples of another size, for training
// and for predictions, so that both see the same pixels. Of a JPEG that is decoded smaller, the last row and column
// weigh as much as they stand for.
FittedImage fit_stored(StoredImage&& stored, const ImageShape& wanted);
// The same of a file. Throws as decode_stored().
FittedImage decode_to_fit(std::span<const uint8_t> file, const std::string& name, const ImageShape& wanted);

// Black becomes white: digits in ink on paper become those of MNIST. REQUIRES: 1 or 3 channels
void invert(Image& image);
// The mean of the outermost pixels, 0 to 255.
double border_mean(const Image& image);

}  // namespace hs
