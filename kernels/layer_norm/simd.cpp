// layer_norm on vectors along the row, in f32: variant "simd". A row is read from memory once and stays in the
// first-level cache for the other passes over it; 16-bit rows are widened there.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/layer_norm/layer_norm.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set
#include "kernels/cpu/vector_math.h"

namespace hs::HS_ISA {
namespace {

// Writes y, and the row's mean and r to `row`.
void forward_row(int64_t C, const float* x, const float* scale, const float* shift, double epsilon, float* y,
                 float* row) {
  const auto length = static_cast<float>(C);
  Vec sum = {}, distances = {}, squares = {};
  for (int64_t c = 0; c < C; c += lanes) sum += load_first(x + c, C - c);
  const float near = lane_sum(sum) / length;  // the mean, but for its rounding
  for (int64_t c = 0; c < C; c += lanes) {
    const Vec distance = first_lanes(load_first(x + c, C - c) - near, C - c);
    distances += distance;
    squares = fma(distance, distance, squares);
  }
  const float rest = lane_sum(distances) / length;
  const float variance = std::max(lane_sum(squares) / length - rest * rest, 0.0f);
  const float r = 1 / std::sqrt(variance + static_cast<float>(epsilon));
  for (int64_t c = 0; c < C; c += lanes) {
    const Vec n = (load_first(x + c, C - c) - near - rest) * r;
    const Vec offset = shift ? load_first(shift + c, C - c) : Vec{};
    store_first(y + c, fma(n, load_first(scale + c, C - c), offset), C - c);
  }
  row[0] = near + rest;
  row[1] = r;
}

// Adds to dscale and dshift, and writes dx unless it is nullptr.
void backward_row(int64_t C, const float* x, const float* scale, const float* dy, const float* row, float* dscale,
                  float* dshift, float* dx) {
  const float mean = row[0], r = row[1];
  const auto normalized = [=](int64_t c) { return (load_first(x + c, C - c) - mean) * r; };
  Vec sum_g = {}, sum_gn = {};
  for (int64_t c = 0; c < C; c += lanes) {
    const int64_t left = C - c;
    const Vec n = normalized(c), d = load_first(dy + c, left), g = d * load_first(scale + c, left);
    store_first(dscale + c, fma(d, n, load_first(dscale + c, left)), left);
    store_first(dshift + c, load_first(dshift + c, left) + d, left);
    sum_g += g;
    sum_gn = fma(g, n, sum_gn);
  }
  if (!dx) return;
  const float mean_g = lane_sum(sum_g) / static_cast<float>(C), mean_gn = lane_sum(sum_gn) / static_cast<float>(C);
  for (int64_t c = 0; c < C; c += lanes) {
    const Vec g = load_first(dy + c, C - c) * load_first(scale + c, C - c);
    store_first(dx + c, (g - mean_g - normalized(c) * mean_gn) * r, C - c);
  }
}

void forward(const LayerNormForward& call) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  const double epsilon = call.epsilon;
  const float *scale = call.scale.data<float>(), *shift = call.shift.defined() ? call.shift.data<float>() : nullptr;
  float* rows = call.rows.mutable_data<float>();
  for_f32_or_16_bits(call.x, call.y, [&]<class T, class Y>() {
    const T* x = call.x.data<T>();
    Y* y = call.y.mutable_data<Y>();
    parallel(layer_norm_groups, [=](int64_t group, int) {
      [[maybe_unused]] float wide[longest_row];
      for (int64_t i = group * R / layer_norm_groups; i < (group + 1) * R / layer_norm_groups; ++i) {
        const float* in = as_computing(x + i * C, C, wide);
        if constexpr (stores_16_bits<Y>) {
          forward_row(C, in, scale, shift, epsilon, wide, rows + 2 * i);
          narrow(wide, y + i * C, C);
        } else {
          forward_row(C, in, scale, shift, epsilon, y + i * C, rows + 2 * i);
        }
      }
    });
  });
}

void backward(const LayerNormBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), R = call.rows.shape()[0];
  float* partial = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());  // (groups, 2, C)
  const float *scale = call.scale.data<float>(), *rows = call.rows.data<float>();
  for_f32_or_16_bits(call.x, call.dy, [&]<class T, class Y>() {
    const T* x = call.x.data<T>();
    const Y* dy = call.dy.data<Y>();
    T* dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
    parallel(layer_norm_groups, [=](int64_t group, int) {
      float *dscale = partial + group * 2 * C, *dshift = dscale + C;
      std::fill(dscale, dscale + 2 * C, 0.0f);
      [[maybe_unused]] float wide_x[longest_row], wide_dy[longest_row];
      for (int64_t i = group * R / layer_norm_groups; i < (group + 1) * R / layer_norm_groups; ++i) {
        const float *in = as_computing(x + i * C, C, wide_x), *dout = as_computing(dy + i * C, C, wide_dy);
        if constexpr (stores_16_bits<T>) {
          backward_row(C, in, scale, dout, rows + 2 * i, dscale, dshift, dx ? wide_dy : nullptr);
          if (dx) narrow(wide_dy, dx + i * C, C);
        } else {
          backward_row(C, in, scale, dout, rows + 2 * i, dscale, dshift, dx ? dx + i * C : nullptr);
        }
      }
    });
  });
  add_groups<double>(partial, 2 * C, layer_norm_groups, call.accumulate, call.dscale);
  add_groups<double>(partial + C, 2 * C, layer_norm_groups, call.accumulate, call.dshift);
}

}  // namespace
}  // namespace hs::HS_ISA

#else

namespace hs {
namespace {

constexpr int64_t longest_row = 4096;  // of 16 bits: rows are widened on the stack

bool supports(const Tensor& x, const Tensor& y) {
  return is_float_or_narrower(x, y) && (is_f32(y) || (is_16_bit(y) && x.shape().back() <= longest_row));
}

}  // namespace
}  // namespace hs

#define HS_SOURCE "kernels/layer_norm/simd.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

REGISTER_KERNEL(layer_norm_forward, cpu, "simd",
                {.run = HS_DISPATCHED(forward),
                 .supported = [](const LayerNormForward& call) { return supports(call.x, call.y); },
                 .rank = 10});
REGISTER_KERNEL(layer_norm_backward, cpu, "simd",
                {.run = HS_DISPATCHED(backward),
                 .supported = [](const LayerNormBackward& call) { return supports(call.x, call.dy); },
                 .workspace =
                     [](const LayerNormBackward& call) {
                       return layer_norm_groups * 2 * call.x.shape().back() * static_cast<int64_t>(sizeof(float));
                     },
                 .rank = 10});

}  // namespace
}  // namespace hs
#endif
