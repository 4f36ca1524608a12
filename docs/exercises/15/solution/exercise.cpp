#include "docs/exercises/15/exercise.h"

#include <algorithm>

namespace exercise {
namespace {

// Calls copy(element of the matrix, pixel) for all pairs, and zero(element) for those outside of the image.
template <class Copy, class Zero>
void for_pairs(const Shape& s, const Copy& copy, const Zero& zero) {
  int64_t element = 0;
  for (int64_t oh = 0; oh < s.out_height(); ++oh) {
    for (int64_t ow = 0; ow < s.out_width(); ++ow) {
      for (int64_t kh = 0; kh < s.kernel; ++kh) {
        for (int64_t kw = 0; kw < s.kernel; ++kw) {
          const int64_t h = oh * s.stride + kh - s.pad, w = ow * s.stride + kw - s.pad;
          const bool inside = 0 <= h && h < s.height && 0 <= w && w < s.width;
          for (int64_t c = 0; c < s.channels; ++c, ++element) {
            if (inside) {
              copy(element, (h * s.width + w) * s.channels + c);
            } else {
              zero(element);
            }
          }
        }
      }
    }
  }
}

}  // namespace

void im2col(const Shape& shape, const float* image, float* matrix) {
  for_pairs(
      shape, [&](int64_t element, int64_t pixel) { matrix[element] = image[pixel]; },
      [&](int64_t element) { matrix[element] = 0; });
}

void col2im(const Shape& shape, const float* matrix, float* image) {
  std::fill_n(image, shape.height * shape.width * shape.channels, 0.0f);
  for_pairs(
      shape, [&](int64_t element, int64_t pixel) { image[pixel] += matrix[element]; }, [](int64_t) {});
}

}  // namespace exercise
