// batch_norm2d on vectors of channels, for channel counts that fill them. Memory limits it, so x is read once for its
// mean and variance: a block of rows that stays in the first-level cache gets both in two sweeps, in f32, and the
// blocks meet in double, by the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
// computing sample variances", 1979). The blocks depend on the shape alone. 16-bit rows are widened block by block.
#include <algorithm>
#include <cmath>

#include "kernels/batch_norm2d/batch_norm2d.h"
#include "kernels/cpu/elements.h"

#ifdef HS_ISA  // each_isa.h, below, includes this file again for each instruction set

namespace hs::HS_ISA {
namespace {

constexpr int64_t groups = batch_norm_groups;
constexpr int64_t block_values = 2048;  // 8 KiB in f32
constexpr int64_t max_channels = 1024;  // then a block is two rows

template <class Call>
bool takes(const Call& call) {
  const int64_t C = call.x.shape().back();
  return takes_f32_or_16_bits(call) && C % lanes == 0 && C > 0 && C <= max_channels;
}

// Calls body(first, rows) for the blocks of rows begin .. end - 1.
template <class Body>
void for_blocks(int64_t begin, int64_t end, int64_t C, const Body& body) {
  const int64_t step = block_values / C;
  for (int64_t first = begin; first < end; first += step) body(first, std::min(step, end - first));
}

template <class Body>
void for_blocks_of_group(int64_t group, int64_t M, int64_t C, const Body& body) {
  for_blocks(group * M / groups, (group + 1) * M / groups, C, body);
}

// Calls body(i, c) for each vector of `count` values of whole rows: value i is the first, of channel c.
template <class Body>
void for_vectors(int64_t count, int64_t C, const Body& body) {
  for (int64_t i = 0, c = 0; i < count; i += lanes, c = c + lanes < C ? c + lanes : 0) body(i, c);
}

// A block in f32, if T is not f32.
template <class T>
struct Buffer {
  float values[stores_16_bits<T> ? block_values : 1];

  const float* read(const T* from, int64_t count) { return as_computing(from, count, values); }
  // Where to compute a result that belongs at `to`, and its way there.
  float* place(T* to) {
    if constexpr (stores_16_bits<T>) return values;
    return reinterpret_cast<float*>(to);
  }
  void write(T* to, int64_t count) const {
    if constexpr (stores_16_bits<T>) narrow(values, to, count);
  }
};

Vec relu(Vec v) { return v <= 0 ? Vec{} : v; }

// (x - mean) scale + shift, `scales` being divided by the deviations. (C) each
struct Normalization {
  const float *means = nullptr, *scales = nullptr, *shifts = nullptr;
  Vec operator()(Vec x, int64_t c) const { return fma(x - load(means + c), load(scales + c), load(shifts + c)); }
};

// The gradient of y: dy + more, but zero where ReLU made y zero. That is read from y, or computed again from x.
template <class T>
struct GradientOfY {
  const T *dy, *more = nullptr, *y = nullptr;  // more, y: nullptr without
  Normalization normalization = {};            // shifts: nullptr unless it is computed again
};

template <class T>
struct GradientBuffer {
  float values[block_values];

  // x: the block's
  const float* read(const GradientOfY<T>& from, const float* x, int64_t first, int64_t count, int64_t C) {
    const float* sum = as_computing(from.dy + first, count, values);
    if (from.more) {
      Buffer<T> buffer;
      const float* more = buffer.read(from.more + first, count);
      for (int64_t i = 0; i < count; ++i) values[i] = sum[i] + more[i];
      sum = values;
    }
    if (from.y) through_relu(from.y + first, sum, count, values);
    if (from.y) return values;
    if (!from.normalization.shifts) return sum;
    for_vectors(count, C, [&](int64_t i, int64_t c) {
      store(values + i, from.normalization(load(x + i), c) <= 0 ? Vec{} : load(sum + i));
    });
    return values;
  }
};

// The sums over a block's rows of what add(row, sums) adds. In four chains of additions: one would wait for each.
template <int count, class Add>
void sum_rows(int64_t rows, Vec (&total)[count], const Add& add) {
  Vec sums[4][count] = {};
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    for (int i = 0; i < 4; ++i) add(row + i, sums[i]);
  }
  for (; row < rows; ++row) add(row, sums[0]);
  for (int k = 0; k < count; ++k) total[k] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
}

// Of `count` values per channel their mean and the sum of their squared distances from it.
struct Moments {
  double *mean, *squares;  // (C)
  double count = 0;

  // Joins those of `others` values of channel c.
  void join(double others, int64_t c, double other_mean, double other_squares) const {
    const double part = others / (count + others), distance = other_mean - mean[c];
    mean[c] += distance * part;
    squares[c] += other_squares + distance * distance * count * part;
  }
};

double* doubles(Tensor& workspace) { return reinterpret_cast<double*>(workspace.mutable_data<uint8_t>()); }

template <class T>
void statistics_of(const BatchNorm2dStatistics& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), M = batch_norm_rows(call.x);
  double* moments = doubles(workspace);  // (groups, 2, C)
  const T* from = call.x.data<T>();
  parallel(groups, [=](int64_t group, int) {
    Moments own{.mean = moments + 2 * group * C, .squares = moments + (2 * group + 1) * C};
    std::fill_n(own.mean, 2 * C, 0.0);
    for_blocks_of_group(group, M, C, [&](int64_t first, int64_t rows) {
      Buffer<T> buffer;
      const float* block = buffer.read(from + first * C, rows * C);
      for (int64_t c = 0; c < C; c += lanes) {
        Vec sum[1], apart[2];
        sum_rows(rows, sum, [=](int64_t row, Vec(&s)[1]) {
          s[0] += load(block + row * C + c);
          __builtin_prefetch(block + row * C + c + block_values);
        });
        const Vec near = sum[0] / broadcast(static_cast<float>(rows));  // the mean, but for its rounding
        sum_rows(rows, apart, [=](int64_t row, Vec(&s)[2]) {
          const Vec distance = load(block + row * C + c) - near;
          s[0] += distance;
          s[1] = fma(distance, distance, s[1]);
        });
        for (int64_t i = 0; i < lanes; ++i) {
          const double rest = apart[0][i] / static_cast<double>(rows);
          own.join(static_cast<double>(rows), c + i, near[i] + rest, apart[1][i] - apart[0][i] * rest);
        }
      }
      own.count += static_cast<double>(rows);
    });
  });
  const auto count_of = [M](int64_t group) {
    const int64_t begin = group * M / groups, end = (group + 1) * M / groups;
    return static_cast<double>(end - begin);
  };
  Moments all{.mean = moments, .squares = moments + C, .count = count_of(0)};  // of the first group
  for (int64_t group = 1; group < groups; ++group) {
    const double count = count_of(group);
    if (count == 0) continue;
    const double* other = moments + 2 * group * C;
    for (int64_t c = 0; c < C; ++c) all.join(count, c, other[c], other[C + c]);
    all.count += count;
  }
  float *mean = call.mean.mutable_data<float>(), *variance = call.variance.mutable_data<float>();
  for (int64_t c = 0; c < C; ++c) {
    mean[c] = static_cast<float>(all.mean[c]);
    variance[c] = static_cast<float>(all.squares[c] / static_cast<double>(M - 1));
  }
}

// scale / sqrt(variance + eps) of each channel. scale: nullptr for ones.
void factors(const Tensor& variance, const BatchNormVariance& kind, int64_t M, const float* scale, float* result) {
  const float* from = variance.data<float>();
  const double factor = kind.factor(M);
  for (int64_t c = 0; c < variance.size(); ++c) {
    result[c] = static_cast<float>((scale ? scale[c] : 1) / std::sqrt(from[c] * factor + kind.eps));
  }
}

template <class T>
const T* or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

template <class T>
void forward_of(const BatchNorm2dForward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), M = batch_norm_rows(call.x);
  float* scales = reinterpret_cast<float*>(workspace.mutable_data<uint8_t>());  // (C)
  factors(call.variance, call.kind, M, call.scale.data<float>(), scales);
  const Normalization normalized{call.mean.data<float>(), scales, call.shift.data<float>()};
  const T *x = call.x.data<T>(), *residual = or_null<T>(call.residual);
  T* y = call.y.mutable_data<T>();
  const bool relu_now = call.relu && !residual;
  parallel_ranges(M, elementwise_grain / C, [=](int64_t begin, int64_t end) {
    for_blocks(begin, end, C, [&](int64_t first, int64_t rows) {
      Buffer<T> in, out;
      const int64_t start = first * C, count = rows * C;
      const float* block = in.read(x + start, count);
      float* to = out.place(y + start);
      for_vectors(count, C, [=](int64_t i, int64_t c) {
        const Vec value = normalized(load(block + i), c);
        store(to + i, relu_now ? relu(value) : value);
      });
      out.write(y + start, count);
      if (!residual) return;
      const float *rounded = out.read(y + start, count), *beside = in.read(residual + start, count);
      for (int64_t i = 0; i < count; i += lanes) store(to + i, relu(load(rounded + i) + load(beside + i)));
      out.write(y + start, count);
    });
  });
}

template <class T>
void backward_of(const BatchNorm2dBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), M = batch_norm_rows(call.x);
  double* sums = doubles(workspace);                                 // (groups, 2, C): of dy, and of dy (x - mean)
  float* inverse = reinterpret_cast<float*>(sums + 2 * groups * C);  // (C): 1 / sqrt(variance + eps)
  float *scales = inverse + C, *offsets = scales + C,
        *slopes = offsets + C;  // (C): dx = scale (dy - offset - slope (x - mean))
  factors(call.variance, call.kind, M, nullptr, inverse);
  factors(call.variance, call.kind, M, call.scale.data<float>(), scales);
  const float *means = call.mean.data<float>(), *shifts = or_null<float>(call.shift);
  const T* x = call.x.data<T>();
  GradientOfY<T> of_y{
      call.dy.data<T>(), or_null<T>(call.more), shifts ? nullptr : or_null<T>(call.relu_y), {means, scales, shifts}};
  // The first pass keeps the gradient for the residual, or else a sum of two in the place of dx.
  Tensor& kept = call.dresidual.defined() || !call.more.defined() ? call.dresidual : call.dx;
  T* keep = kept.defined() ? kept.mutable_data<T>() : nullptr;
  if (call.needs_sums() || keep) {
    parallel(groups, [=](int64_t group, int) {
      double *of_dy = sums + 2 * group * C, *of_products = of_dy + C;
      std::fill_n(of_dy, 2 * C, 0.0);
      for_blocks_of_group(group, M, C, [&](int64_t first, int64_t rows) {
        Buffer<T> x_buffer;
        GradientBuffer<T> dy_buffer;
        const float* block = x_buffer.read(x + first * C, rows * C);
        const float* gradients = dy_buffer.read(of_y, block, first * C, rows * C, C);
        if (keep) {
          store_block(gradients, keep + first * C, rows * C);
          gradients = as_computing(keep + first * C, rows * C, dy_buffer.values);  // as rounded
        }
        for (int64_t c = 0; c < C; c += lanes) {
          const Vec mean = load(means + c);
          Vec total[2];
          sum_rows(rows, total, [=](int64_t row, Vec(&s)[2]) {
            const Vec gradient = load(gradients + row * C + c);
            s[0] += gradient;
            __builtin_prefetch(block + row * C + c + block_values);
            s[1] = fma(gradient, load(block + row * C + c) - mean, s[1]);
          });
          for (int64_t i = 0; i < lanes; ++i) of_dy[c + i] += total[0][i];
          for (int64_t i = 0; i < lanes; ++i) of_products[c + i] += total[1][i];
        }
      });
    });
    for (int64_t group = 1; group < groups; ++group) {
      for (int64_t i = 0; i < 2 * C; ++i) sums[i] += sums[2 * group * C + i];
    }
    for (int64_t c = 0; c < C; ++c) {
      offsets[c] = static_cast<float>(sums[c] / static_cast<double>(M));
      slopes[c] = static_cast<float>(sums[C + c] * inverse[c] * inverse[c] / static_cast<double>(M));
    }
  }
  if (call.dshift.defined()) {
    update_gradient(call.dshift, call.accumulate, [=](int64_t c, double before) { return before + sums[c]; });
  }
  if (call.dscale.defined()) {
    update_gradient(call.dscale, call.accumulate,
                    [=](int64_t c, double before) { return before + sums[C + c] * inverse[c]; });
  }
  pass_statistics_on(call);
  if (!call.dx.defined()) return;
  if (keep) of_y = {.dy = keep};
  T* dx = call.dx.mutable_data<T>();
  const bool of_batch = call.kind.of_batch;
  parallel_ranges(M, elementwise_grain / C, [=](int64_t begin, int64_t end) {
    for_blocks(begin, end, C, [&](int64_t first, int64_t rows) {
      Buffer<T> x_buffer, out;
      GradientBuffer<T> dy_buffer;
      const float* block = x_buffer.read(x + first * C, rows * C);
      const float* gradients = dy_buffer.read(of_y, block, first * C, rows * C, C);
      float* to = out.place(dx + first * C);
      for_vectors(rows * C, C, [=](int64_t i, int64_t c) {
        Vec d = load(gradients + i);
        if (of_batch) d = (d - load(offsets + c)) - load(slopes + c) * (load(block + i) - load(means + c));
        store(to + i, load(scales + c) * d);
      });
      out.write(dx + first * C, rows * C);
    });
  });
}

void statistics(const BatchNorm2dStatistics& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { statistics_of<T>(call, workspace); });
}
void forward(const BatchNorm2dForward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { forward_of<T>(call, workspace); });
}
void backward(const BatchNorm2dBackward& call, Tensor& workspace) {
  for_f32_or_16_bits(call.x.dtype(), [&]<class T>() { backward_of<T>(call, workspace); });
}

}  // namespace
}  // namespace hs::HS_ISA

#else
#define HS_SOURCE "kernels/batch_norm2d/simd.cpp"
#include "kernels/cpu/each_isa.h"

namespace hs {
namespace {

// Bytes of `floats` floats per channel, and of the sums of the groups, two doubles each.
int64_t workspace(const Tensor& x, int64_t floats, int64_t sums) {
  return x.shape().back() * (4 * floats + sums * 2 * batch_norm_groups * static_cast<int64_t>(sizeof(double)));
}

REGISTER_KERNEL(batch_norm2d_statistics, cpu, "simd",
                {.run = HS_DISPATCHED(statistics),
                 .supported = HS_DISPATCHED(takes<BatchNorm2dStatistics>),
                 .workspace = [](const BatchNorm2dStatistics& c) { return workspace(c.x, 0, 1); },
                 .rank = 10});
REGISTER_KERNEL(batch_norm2d_forward, cpu, "simd",
                {.run = HS_DISPATCHED(forward),
                 .supported = HS_DISPATCHED(takes<BatchNorm2dForward>),
                 .workspace = [](const BatchNorm2dForward& c) { return workspace(c.x, 1, 0); },
                 .rank = 10});
REGISTER_KERNEL(batch_norm2d_backward, cpu, "simd",
                {.run = HS_DISPATCHED(backward),
                 .supported = HS_DISPATCHED(takes<BatchNorm2dBackward>),
                 .workspace = [](const BatchNorm2dBackward& c) { return workspace(c.x, 4, 1); },
                 .rank = 10});

}  // namespace
}  // namespace hs

#endif
