// A sign in a photograph or a scan, ink on paper or chalk on a board, as MNIST's authors prepared theirs
// (yann.lecun.com/exdb/mnist): light strokes on black, cut out, fitted into 20 of 28 pixels, with their centre of mass
// in the middle.
#pragma once

#include <span>
#include <string>

#include "data/formats/fit_image.h"

namespace hs {

// A pixel is ink where it differs from the ground around it, so shadows, ruled lines and the colour of the paper go.
// Only the largest connected strokes stay, and those that are a tenth as large, without what reaches beyond the
// picture, unless nothing else is there. Strokes that would be thinner than those of MNIST are made as thick. Of images
// of another size than 28 x 28, the same part of each side is filled. `changes` lists all of it. Throws Error
// (bad_input): no ink was found; and as decode_stored().
// REQUIRES: `wanted` has 1 channel
FittedImage decode_ink(std::span<const uint8_t> file, const std::string& name, const ImageShape& wanted);

}  // namespace hs
