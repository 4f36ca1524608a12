// The definitions of the larger ops as plain loops in f64: slow, obvious, and sharing no code with what they check.
#pragma once

#include <vector>

#include "kernels/augment/augment.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/examples/op_table.h"
#include "kernels/gemm/gemm.h"
#include "kernels/normalize_image/normalize_image.h"

namespace hs::examples {

Numbers naive_gemm(const Numbers& a, const Numbers& b, const Numbers& bias, int64_t M, int64_t N, int64_t K,
                   const GemmOptions& options);
// x is (N, H, W, C); bias may be empty.
Numbers naive_conv2d(const Numbers& x, const Numbers& weight, const Numbers& bias, const Shape& shape, int64_t OC,
                     const Conv2dOptions& options);
Numbers naive_max_pool2d(const Numbers& x, const Shape& shape, int64_t window, int64_t stride);
Numbers naive_cross_entropy(const Numbers& logits, const std::vector<int32_t>& labels, int64_t classes,
                            double smoothing = 0);
// Warps one image (H, W, C) in f64, as the warp's integers define: bilinear, 0 outside and in the cut-out square.
Numbers naive_warp(const Numbers& image, const Shape& shape, const ImageWarp& warp);

// A pixel as normalize_image() has it: rounded once, as by a cast of the f32 result.
double normalized_to(DType type, uint8_t pixel, const PixelScale& scale);

}  // namespace hs::examples
