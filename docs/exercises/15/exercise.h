// Exercise 15, of docs/chapters/04_cpu_kernels.md: a convolution as a matrix product, by im2col, and the transpose of
// im2col, which its backward needs. Edit exercise.cpp beside this file, then run tests/exercise 15.
#pragma once

#include <cstdint>

namespace exercise {

struct Shape {
  int64_t height, width, channels;      // of the image
  int64_t kernel, stride = 1, pad = 0;  // a window is kernel x kernel
  int64_t out_height() const { return (height + 2 * pad - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * pad - kernel) / stride + 1; }
  int64_t rows() const { return out_height() * out_width(); }
  int64_t columns() const { return kernel * kernel * channels; }
};

// image is (height, width, channels); matrix is (rows, columns), both in row-major order. Row (oh, ow) of the matrix
// holds the window that gives this output, in the order (kh, kw, c):
//
//   matrix[oh * out_width + ow][(kh * kernel + kw) * channels + c]
//       = image[oh * stride + kh - pad][ow * stride + kw - pad][c]
//
// and 0 outside of the image. The convolution is then matrix times weights (columns, out_channels). Writes all of
// matrix.
void im2col(const Shape& shape, const float* image, float* matrix);

// The transpose of im2col as a linear map: each pixel of the image becomes the sum of all elements of the matrix that
// im2col copies it to. With dL/d(matrix) as the matrix, this is dL/d(image). Writes all of image; a pixel in no window
// gets 0.
void col2im(const Shape& shape, const float* matrix, float* image);

}  // namespace exercise
