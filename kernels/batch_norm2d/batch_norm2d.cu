// A block has some neighbouring channels and a group of rows, as kernels/cuda/columns.cuh divides them; the numbers of
// a thread's channels stay in registers.
#include "kernels/batch_norm2d/batch_norm2d.h"

#include <cuda_runtime.h>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

using cuda::ColumnGroups, cuda::ColumnPart, cuda::Floats;

__device__ unsigned groups_done[cuda::max_column_blocks];  // 0 between launches, which run one at a time

struct Moments {
  float mean, squares;  // of the channel that the thread writes; squares: the sum of those of distances from the mean
};

template <int N>
struct Item {
  Floats<N> mean, squares;
  float count;
};

// Of `count` numbers, which items `begin` to `end` - 1 stand for: item(i) has the moments of some of them and how many.
// Two passes, which meet by the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
// computing sample variances", 1979).
template <int N, class Load>
__device__ __forceinline__ Moments moments_of(const ColumnPart<N>& part, int64_t begin, int64_t end, float count,
                                              const Load& item) {
  Floats<N> sum[1] = {}, squares[1] = {}, mean;
  part.for_rows(begin, end, item, [&](int64_t, const Item<N>& own) {
#pragma unroll
    for (int j = 0; j < N; ++j) sum[0][j] += own.count * own.mean[j];
  });
  const auto totals = part.totals(sum);
#pragma unroll
  for (int j = 0; j < N; ++j) mean[j] = totals[part.place + j] / count;
  const float written = totals[part.thread] / count;
  part.for_rows(begin, end, item, [&](int64_t, const Item<N>& own) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float distance = own.mean[j] - mean[j];
      squares[0][j] += own.squares[j] + own.count * distance * distance;
    }
  });
  return {written, part.totals(squares)[part.thread]};
}

// partial: (groups, 2, C).
template <class T, int N>
__global__ void __launch_bounds__(cuda::block_threads)
    statistics_kernel(cuda::Previous previous, int64_t C, ColumnGroups groups, const T* x, float* partial, float* mean,
                      float* variance) {
  previous.wait();
  const ColumnPart<N> part(C, groups);
  const int64_t c = part.block_c + part.thread;
  const auto rows_of = [&](int64_t group) {
    return static_cast<float>(max(int64_t{0}, min(part.rows_per_group, part.rows - group * part.rows_per_group)));
  };
  const auto row = [&](int64_t i) { return Item<N>{cuda::load<N>(x + i * C + part.c), {}, 1}; };
  // An empty group, of 0 rows, has a mean as well.
  Moments moments = moments_of(part, part.first, part.end, fmaxf(rows_of(blockIdx.y), 1), row);
  if (gridDim.y > 1) {
    if (part.is_writer()) {
      partial[2 * blockIdx.y * C + c] = moments.mean;
      partial[(2 * blockIdx.y + 1) * C + c] = moments.squares;
    }
    if (!cuda::is_last_block(&groups_done[blockIdx.x], gridDim.y)) return;
    const auto group = [&](int64_t i) {
      const float* at = partial + 2 * i * C + part.c;
      return Item<N>{cuda::load<N>(at), cuda::load<N>(at + C), rows_of(i)};
    };
    moments = moments_of(part, 0, gridDim.y, static_cast<float>(part.rows), group);
  }
  if (!part.is_writer()) return;
  mean[c] = moments.mean;
  variance[c] = moments.squares / static_cast<float>(part.rows - 1);
}

struct Normalization {
  Normalization(const Tensor& mean_tensor, const Tensor& variance_tensor, const BatchNormVariance& kind, int64_t rows)
      : means(mean_tensor.data<float>()),
        variances(variance_tensor.data<float>()),
        factor(static_cast<float>(kind.factor(rows))),
        eps(static_cast<float>(kind.eps)) {}
  __device__ float inverse_deviation(float variance) const { return 1.0f / sqrtf(variance * factor + eps); }
  // scale / deviation of N channels from c on.
  template <int N>
  __device__ __forceinline__ Floats<N> scaled(const float* scales, int64_t c) const {
    Floats<N> scale = cuda::load<N>(scales + c);
    const Floats<N> variance = cuda::load<N>(variances + c);
#pragma unroll
    for (int j = 0; j < N; ++j) scale[j] *= inverse_deviation(variance[j]);
    return scale;
  }

  // What running values get of channel c.
  __device__ void pass_on(int64_t c, bool accumulate) const {
    if (dmeans != nullptr) dmeans[c] = (accumulate ? dmeans[c] : 0.0f) + means[c];
    if (dvariances != nullptr) dvariances[c] = (accumulate ? dvariances[c] : 0.0f) + variances[c];
  }

  const float *means, *variances;
  float *dmeans = nullptr, *dvariances = nullptr;
  float factor, eps;
};

template <class T, int N>
__global__ void __launch_bounds__(cuda::block_threads)
    batch_norm2d_forward_kernel(cuda::Previous previous, int64_t C, ColumnGroups groups, Normalization normalization,
                                bool relu, const T* x, const float* scales, const float* shifts, T* y) {
  previous.wait();
  const ColumnPart<N> part(C, groups);
  if (!part.has_columns()) return;
  const Floats<N> mean = cuda::load<N>(normalization.means + part.c), shift = cuda::load<N>(shifts + part.c);
  const Floats<N> scale = normalization.scaled<N>(scales, part.c);
  part.for_rows(
      part.first, part.end, [&](int64_t row) { return cuda::load<N>(x + row * C + part.c); },
      [&](int64_t row, Floats<N> value) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          value[j] = (value[j] - mean[j]) * scale[j] + shift[j];
          value[j] = relu && value[j] <= 0 ? 0.0f : value[j];
        }
        cuda::store<T>(value, y + row * C + part.c);
      });
}

// What backward reads of a row, of two rows at once as it is three packs: the gradient, which is 0 where ReLU let
// nothing through, and x.
template <int N>
struct Gradient {
  Floats<N> dy, y, x;
  bool relu;
  // y: nullptr without ReLU. x: nullptr if it is not needed.
  template <class T>
  __device__ __forceinline__ static Gradient load(int64_t i, const T* dy, const T* y, const T* x) {
    Gradient gradient{cuda::load<N>(dy + i), {}, {}, y != nullptr};
    if (y != nullptr) gradient.y = cuda::load<N>(y + i);
    if (x != nullptr) gradient.x = cuda::load<N>(x + i);
    return gradient;
  }
  __device__ __forceinline__ float operator[](int j) const { return relu && y[j] <= 0 ? 0.0f : dy[j]; }
};

// Both sums, and what they subtract in dx: offsets (C) and slopes (C). partial: (groups, 2, C), the sums of dy and of
// dy (x - mean). An output that is nullptr is left out.
template <class T, int N>
__global__ void __launch_bounds__(cuda::block_threads)
    backward_sums_kernel(cuda::Previous previous, int64_t C, ColumnGroups groups, Normalization normalization,
                         const T* x, const T* dy, const T* y, float* partial, bool accumulate, float* dscale,
                         float* dshift, float* offsets, float* slopes) {
  previous.wait();
  const ColumnPart<N> part(C, groups);
  if (part.is_writer() && blockIdx.y == 0) normalization.pass_on(part.block_c + part.thread, accumulate);
  Floats<N> own[2] = {}, mean = {};
  if (part.has_columns()) mean = cuda::load<N>(normalization.means + part.c);
  part.template for_rows<2>(
      part.first, part.end, [&](int64_t row) { return Gradient<N>::load(row * C + part.c, dy, y, x); },
      [&](int64_t, const Gradient<N>& gradient) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          own[0][j] += gradient[j];
          own[1][j] += gradient[j] * (gradient.x[j] - mean[j]);
        }
      });
  const auto totals = part.totals(own);
  if (!part.template join<2>(totals, partial, &groups_done[blockIdx.x]) || !part.is_writer()) return;
  const int64_t c = part.block_c + part.thread;
  const float sum = totals[part.thread], products = totals[part.columns + part.thread];
  const float inverse = normalization.inverse_deviation(normalization.variances[c]);
  if (dshift) dshift[c] = (accumulate ? dshift[c] : 0.0f) + sum;
  if (dscale) dscale[c] = (accumulate ? dscale[c] : 0.0f) + products * inverse;
  offsets[c] = sum / static_cast<float>(part.rows);
  slopes[c] = products * inverse * inverse / static_cast<float>(part.rows);
}

// dx = scale r (dy - offset - slope (x - mean)), r = 1 / sqrt(variance + eps). offsets: nullptr if mean and variance
// are not those of x; then it is scale r dy.
template <class T, int N>
__global__ void __launch_bounds__(cuda::block_threads)
    batch_norm2d_backward_kernel(cuda::Previous previous, int64_t C, ColumnGroups groups, Normalization normalization,
                                 const T* x, const float* scales, const T* dy, const T* y, const float* offsets,
                                 const float* slopes, T* dx) {
  previous.wait();
  const ColumnPart<N> part(C, groups);
  if (!part.has_columns()) return;
  const bool of_batch = offsets != nullptr;
  const Floats<N> mean = cuda::load<N>(normalization.means + part.c);
  const Floats<N> scale = normalization.scaled<N>(scales, part.c);
  Floats<N> offset = {}, slope = {};
  if (of_batch) offset = cuda::load<N>(offsets + part.c), slope = cuda::load<N>(slopes + part.c);
  part.template for_rows<2>(
      part.first, part.end,
      [&](int64_t row) { return Gradient<N>::load(row * C + part.c, dy, y, of_batch ? x : nullptr); },
      [&](int64_t row, const Gradient<N>& gradient) {
        Floats<N> value;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float subtracted = (gradient[j] - offset[j]) - slope[j] * (gradient.x[j] - mean[j]);
          value[j] = scale[j] * (of_batch ? subtracted : gradient[j]);
        }
        cuda::store<T>(value, dx + row * C + part.c);
      });
}

int64_t floats(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }
float* floats_of(Tensor& workspace) { return reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()); }

int64_t statistics_workspace(const BatchNorm2dStatistics& call) {
  return cuda::column_workspace(batch_norm_rows(call.x), call.x.shape().back(), 2);
}

void statistics_cuda(const BatchNorm2dStatistics& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = batch_norm_rows(call.x);
  float* partial = floats_of(workspace);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    const auto run = [&]<int N>() {
      cuda::launch_columns(statistics_kernel<T, N>, rows, C, N, x, partial, call.mean.mutable_data<float>(),
                           call.variance.mutable_data<float>());
    };
    cuda::for_pack_size<T>(C, run, x, partial);
  });
}

void forward_cuda(const BatchNorm2dForward& call) {
  const int64_t C = call.x.shape().back(), rows = batch_norm_rows(call.x);
  const Normalization normalization(call.mean, call.variance, call.kind, rows);
  const float *scale = call.scale.data<float>(), *shift = call.shift.data<float>();
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T* x = call.x.data<T>();
    T* y = call.y.mutable_data<T>();
    const auto run = [&]<int N>() {
      cuda::launch_columns(batch_norm2d_forward_kernel<T, N>, rows, C, N, normalization, call.relu, x, scale, shift, y);
    };
    cuda::for_pack_size<T>(C, run, normalization.means, normalization.variances, scale, shift, x, y);
  });
}

// offsets and slopes, then the partial sums.
int64_t backward_workspace(const BatchNorm2dBackward& call) {
  const int64_t C = call.x.shape().back();
  return floats(2 * C) + cuda::column_workspace(batch_norm_rows(call.x), C, 2);
}

void backward_cuda(const BatchNorm2dBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = batch_norm_rows(call.x);
  Normalization normalization(call.mean, call.variance, call.kind, rows);
  float *offsets = floats_of(workspace), *slopes = offsets + C, *partial = slopes + C;
  const auto pointer_or_null = [](Tensor& x) { return x.defined() ? x.mutable_data<float>() : nullptr; };
  normalization.dmeans = pointer_or_null(call.dmean);
  normalization.dvariances = pointer_or_null(call.dvariance);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *dy = call.dy.data<T>();
    const T* y = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
    T* dx = call.dx.defined() ? call.dx.mutable_data<T>() : nullptr;
    const float* scale = call.scale.data<float>();
    const auto run = [&]<int N>() {
      if (call.needs_sums() || call.dmean.defined() || call.dvariance.defined()) {
        cuda::launch_columns(backward_sums_kernel<T, N>, rows, C, N, normalization, x, dy, y, partial, call.accumulate,
                             pointer_or_null(call.dscale), pointer_or_null(call.dshift), offsets, slopes);
      }
      if (dx == nullptr) return;
      const float* subtracted = call.kind.of_batch ? offsets : nullptr;
      cuda::launch_columns(batch_norm2d_backward_kernel<T, N>, rows, C, N, normalization, x, scale, dy, y, subtracted,
                           slopes, dx);
    };
    cuda::for_pack_size<T>(C, run, normalization.means, normalization.variances, scale, offsets, x, dy, y, dx);
  });
}

REGISTER_KERNEL(batch_norm2d_statistics, cuda, "simple",
                {.run = statistics_cuda, .supported = cuda::takes_floats, .workspace = statistics_workspace});
REGISTER_KERNEL(batch_norm2d_forward, cuda, "simple",
                {.run = forward_cuda, .supported = [](const BatchNorm2dForward& call) {
                   return cuda::is_float(call.x) && !call.residual.defined();
                 }});
REGISTER_KERNEL(batch_norm2d_backward, cuda, "simple",
                {.run = backward_cuda,
                 .supported =
                     [](const BatchNorm2dBackward& call) {
                       return cuda::is_float(call.x) && !call.more.defined() && !call.dresidual.defined();
                     },
                 .workspace = backward_workspace});

}  // namespace
}  // namespace hs
