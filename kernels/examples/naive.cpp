#include "kernels/examples/naive.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hs::examples {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

}  // namespace

Numbers naive_gemm(const Numbers& a, const Numbers& b, const Numbers& bias, int64_t M, int64_t N, int64_t K,
                   const GemmOptions& options) {
  Numbers c(at(M * N));
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) {
        sum += a[at(options.transpose_a ? k * M + m : m * K + k)] * b[at(options.transpose_b ? n * K + k : k * N + n)];
      }
      c[at(m * N + n)] = options.alpha * sum + (bias.empty() ? 0 : bias[at(n)]);
    }
  }
  return c;
}

Numbers naive_conv2d(const Numbers& x, const Numbers& weight, const Numbers& bias, const Shape& shape, int64_t OC,
                     const Conv2dOptions& options) {
  const int64_t N = shape[0], H = shape[1], W = shape[2], C = shape[3];
  const int64_t KH = options.kernel_h, KW = options.kernel_w, padding = options.padding;
  const int64_t OH = (H + 2 * padding - KH) / options.stride + 1, OW = (W + 2 * padding - KW) / options.stride + 1;
  Numbers y;
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t oh = 0; oh < OH; ++oh) {
      for (int64_t ow = 0; ow < OW; ++ow) {
        for (int64_t oc = 0; oc < OC; ++oc) {
          double sum = bias.empty() ? 0 : bias[at(oc)];
          for (int64_t kh = 0; kh < KH; ++kh) {
            for (int64_t kw = 0; kw < KW; ++kw) {
              const int64_t h = oh * options.stride + kh - padding, w = ow * options.stride + kw - padding;
              if (h < 0 || h >= H || w < 0 || w >= W) continue;
              for (int64_t c = 0; c < C; ++c) {
                sum += x[at(((n * H + h) * W + w) * C + c)] * weight[at(((kh * KW + kw) * C + c) * OC + oc)];
              }
            }
          }
          y.push_back(sum);
        }
      }
    }
  }
  return y;
}

Numbers naive_max_pool2d(const Numbers& x, const Shape& shape, int64_t window, int64_t stride) {
  const int64_t N = shape[0], H = shape[1], W = shape[2], C = shape[3];
  Numbers y;
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t h = 0; h + window <= H; h += stride) {
      for (int64_t w = 0; w + window <= W; w += stride) {
        for (int64_t c = 0; c < C; ++c) {
          double best = -std::numeric_limits<double>::infinity();
          for (int64_t i = 0; i < window * window; ++i) {
            best = std::max(best, x[at(((n * H + h + i / window) * W + w + i % window) * C + c)]);
          }
          y.push_back(best);
        }
      }
    }
  }
  return y;
}

Numbers naive_cross_entropy(const Numbers& logits, const std::vector<int32_t>& labels, int64_t classes,
                            double smoothing) {
  double total = 0;
  for (size_t n = 0; n < labels.size(); ++n) {
    const double* z = logits.data() + n * at(classes);
    double sum = 0;
    for (int64_t j = 0; j < classes; ++j) sum += std::exp(z[j]);
    total += std::log(sum) - (1 - smoothing) * z[labels[n]];
    for (int64_t j = 0; j < classes; ++j) total -= smoothing / static_cast<double>(classes) * z[j];
  }
  return {total / static_cast<double>(labels.size())};
}

Numbers naive_warp(const Numbers& image, const Shape& shape, const ImageWarp& warp) {
  const int64_t H = shape[0], W = shape[1], C = shape[2];
  const double middle_x = 0.5 * static_cast<double>(W - 1), middle_y = 0.5 * static_cast<double>(H - 1);
  const double cosine = warp.cosine / 65536.0, sine = warp.sine / 65536.0;
  const auto pixel = [&](int64_t y, int64_t x, int64_t c) {
    return y < 0 || y >= H || x < 0 || x >= W ? 0 : image[static_cast<size_t>((y * W + x) * C + c)];
  };
  Numbers result;
  for (int64_t y = 0; y < H; ++y) {
    for (int64_t x = 0; x < W; ++x) {
      // Inverts the rotation of the x axis towards the y axis, which points down.
      const double moved_x = static_cast<double>(x - warp.right) - middle_x,
                   moved_y = static_cast<double>(y - warp.down) - middle_y;
      double from_x = cosine * moved_x + sine * moved_y + middle_x,
             from_y = cosine * moved_y - sine * moved_x + middle_y;
      if (warp.flip) from_x = static_cast<double>(W - 1) - from_x;
      const double part_x = from_x - std::floor(from_x), part_y = from_y - std::floor(from_y);
      const auto left = static_cast<int64_t>(std::floor(from_x)), top = static_cast<int64_t>(std::floor(from_y));
      const bool cut = std::clamp<int64_t>(x, warp.left, int64_t{warp.left} + warp.side - 1) == x &&
                       std::clamp<int64_t>(y, warp.top, int64_t{warp.top} + warp.side - 1) == y && warp.side > 0;
      for (int64_t c = 0; c < C; ++c) {
        const double value = (1 - part_y) * ((1 - part_x) * pixel(top, left, c) + part_x * pixel(top, left + 1, c)) +
                             part_y * ((1 - part_x) * pixel(top + 1, left, c) + part_x * pixel(top + 1, left + 1, c));
        result.push_back(cut ? 0 : value);
      }
    }
  }
  return result;
}

double normalized_to(DType type, uint8_t pixel, const PixelScale& scale) {
  const float value = normalized(pixel, scale);
  return type == DType::f16 ? to_float(to_half(value)) : type == DType::bf16 ? to_float(to_bfloat16(value)) : value;
}

}  // namespace hs::examples
