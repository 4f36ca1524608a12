// The starter: right without padding and as long as windows do not overlap. Change it until tests/exercise 15 is
// content.
#include "docs/exercises/15/exercise.h"

#include <algorithm>

namespace exercise {
namespace {

// Calls copy(element of the matrix, pixel) for all pairs.
template <class Copy>
void for_pairs(const Shape& s, const Copy& copy) {
  int64_t element = 0;
  for (int64_t oh = 0; oh < s.out_height(); ++oh) {
    for (int64_t ow = 0; ow < s.out_width(); ++ow) {
      for (int64_t kh = 0; kh < s.kernel; ++kh) {
        for (int64_t kw = 0; kw < s.kernel; ++kw) {
          const int64_t h = std::clamp<int64_t>(oh * s.stride + kh - s.pad, 0, s.height - 1);
          const int64_t w = std::clamp<int64_t>(ow * s.stride + kw - s.pad, 0, s.width - 1);
          for (int64_t c = 0; c < s.channels; ++c) copy(element++, (h * s.width + w) * s.channels + c);
        }
      }
    }
  }
}

}  // namespace

void im2col(const Shape& shape, const float* image, float* matrix) {
  for_pairs(shape, [&](int64_t element, int64_t pixel) { matrix[element] = image[pixel]; });
}

void col2im(const Shape& shape, const float* matrix, float* image) {
  for_pairs(shape, [&](int64_t element, int64_t pixel) { image[pixel] = matrix[element]; });
}

}  // namespace exercise
