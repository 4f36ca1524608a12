// A block has some neighbouring channels and a group of rows, as kernels/cuda/columns.cuh divides them; a thread has
// one channel, whose numbers stay in registers.
#include "kernels/batch_norm2d/batch_norm2d.h"

#include <cuda_runtime.h>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// What a block and its threads work on.
struct Part {
  __device__ Part(int64_t all_rows, int64_t channels, int block_width)
      : rows(all_rows),
        C(channels),
        rows_per_group((all_rows + gridDim.y - 1) / gridDim.y),
        c(int64_t{blockIdx.x} * block_width + static_cast<int>(threadIdx.x) % block_width),
        first(blockIdx.y * rows_per_group),
        width(block_width),
        thread(static_cast<int>(threadIdx.x)) {}
  __device__ int64_t count(int64_t group) const {  // rows of a group
    return max(int64_t{0}, min(rows_per_group, rows - group * rows_per_group));
  }
  __device__ int64_t end() const { return min(rows, first + rows_per_group); }
  __device__ bool has_channel() const { return c < C; }
  __device__ bool is_writer() const { return thread < width && c < C; }  // one thread for each channel

  // The sums of value(row) over the block's rows, and of value(group) over all groups; see column_total().
  template <class Value>
  __device__ float over_rows(const Value& value) const {
    return cuda::column_total(first, end(), has_channel(), width, value);
  }
  template <class Value>
  __device__ float over_groups(const Value& value) const {
    return cuda::column_total(0, gridDim.y, has_channel(), width, value);
  }

  int64_t rows, C, rows_per_group, c, first;
  int width, thread;
};

__device__ unsigned groups_done[cuda::most_column_blocks];  // 0 between the launches, of which there is one at a time

// `value` of the thread of each channel below `width`, in all threads of the channel.
__device__ __forceinline__ float of_channel(const Part& part, float value) {
  __shared__ SharedArray<float, 32> values;
  __syncthreads();
  if (part.thread < part.width) values[part.thread] = value;
  __syncthreads();
  return values[part.thread % part.width];
}

// Two passes over the rows of a group; then the groups meet by the formula of Chan, Golub and LeVeque ("Updating
// formulae and a pairwise algorithm for computing sample variances", 1979). partial: (groups, 2, C).
template <class T>
__global__ void statistics_kernel(int64_t rows, int64_t C, int width, const T* x, float* partial, float* mean,
                                  float* variance) {
  const Part part(rows, C, width);
  const int64_t c = part.c, count = part.count(blockIdx.y);
  const float sum = part.over_rows([=](int64_t row) { return cuda::to_f32(x[row * C + c]); });
  const float own_mean = of_channel(part, count > 0 ? sum / static_cast<float>(count) : 0.0f);
  const float own_squares = part.over_rows([=](int64_t row) {
    const float distance = cuda::to_f32(x[row * C + c]) - own_mean;
    return distance * distance;
  });
  if (part.is_writer()) {
    partial[2 * blockIdx.y * C + c] = own_mean;
    partial[(2 * blockIdx.y + 1) * C + c] = own_squares;
  }
  if (gridDim.y > 1 && !cuda::is_last_block(&groups_done[blockIdx.x], gridDim.y)) return;
  const float total = part.over_groups(
      [&](int64_t group) { return partial[2 * group * C + c] * static_cast<float>(part.count(group)); });
  const float all_mean = of_channel(part, total / static_cast<float>(rows));
  const float squares = part.over_groups([&](int64_t group) {
    const float distance = partial[2 * group * C + c] - all_mean;
    return partial[(2 * group + 1) * C + c] + static_cast<float>(part.count(group)) * distance * distance;
  });
  if (part.is_writer()) {
    mean[c] = all_mean;
    variance[c] = squares / static_cast<float>(rows - 1);
  }
}

struct Normalization {
  Normalization(const Tensor& mean_tensor, const Tensor& variance_tensor, const BatchNormVariance& kind, int64_t rows)
      : means(mean_tensor.data<float>()),
        variances(variance_tensor.data<float>()),
        factor(static_cast<float>(kind.factor(rows))),
        eps(static_cast<float>(kind.eps)) {}
  __device__ float mean(int64_t c) const { return means[c]; }
  __device__ float inverse_deviation(int64_t c) const { return 1.0f / sqrtf(variances[c] * factor + eps); }

  const float *means, *variances;
  float factor, eps;
};

template <class T>
__global__ void batch_norm2d_forward_kernel(int64_t rows, int64_t C, int width, Normalization normalization, bool relu,
                                            const T* x, const float* scales, const float* shifts, T* y) {
  const Part part(rows, C, width);
  const int64_t c = part.c;
  if (c >= C) return;
  const float mean = normalization.mean(c), scale = scales[c] * normalization.inverse_deviation(c), shift = shifts[c];
  for (int64_t row = part.first + part.thread / width; row < part.end(); row += cuda::block_threads / width) {
    const float value = (cuda::to_f32(x[row * C + c]) - mean) * scale + shift;
    y[row * C + c] = cuda::from_f32<T>(relu && value <= 0 ? 0.0f : value);
  }
}

// dy where ReLU let y through, otherwise 0. y: nullptr without ReLU.
template <class T>
__device__ __forceinline__ float gradient_at(int64_t i, const T* dy, const T* y) {
  return y && cuda::to_f32(y[i]) <= 0 ? 0.0f : cuda::to_f32(dy[i]);
}

// Both sums, and what they subtract in dx: offsets (C) and slopes (C). partial: (groups, 2, C), the sums of dy and of
// dy (x - mean). An output that is nullptr is left out.
template <class T>
__global__ void backward_sums_kernel(int64_t rows, int64_t C, int width, Normalization normalization, const T* x,
                                     const T* dy, const T* y, float* partial, bool accumulate, float* dscale,
                                     float* dshift, float* offsets, float* slopes) {
  const Part part(rows, C, width);
  const int64_t c = part.c;
  const float mean = part.has_channel() ? normalization.mean(c) : 0.0f;
  const float own_sum = part.over_rows([=](int64_t row) { return gradient_at(row * C + c, dy, y); });
  const float own_products = part.over_rows(
      [=](int64_t row) { return gradient_at(row * C + c, dy, y) * (cuda::to_f32(x[row * C + c]) - mean); });
  if (part.is_writer()) {
    partial[2 * blockIdx.y * C + c] = own_sum;
    partial[(2 * blockIdx.y + 1) * C + c] = own_products;
  }
  if (gridDim.y > 1 && !cuda::is_last_block(&groups_done[blockIdx.x], gridDim.y)) return;
  const float sum = part.over_groups([=](int64_t group) { return partial[2 * group * C + c]; });
  const float products = part.over_groups([=](int64_t group) { return partial[(2 * group + 1) * C + c]; });
  if (!part.is_writer()) return;
  const float inverse = normalization.inverse_deviation(c);
  if (dshift) dshift[c] = (accumulate ? dshift[c] : 0.0f) + sum;
  if (dscale) dscale[c] = (accumulate ? dscale[c] : 0.0f) + products * inverse;
  offsets[c] = sum / static_cast<float>(rows);
  slopes[c] = products * inverse * inverse / static_cast<float>(rows);
}

// dx = scale r (dy - offset - slope (x - mean)), r = 1 / sqrt(variance + eps). offsets: nullptr if mean and variance
// are not those of x; then it is scale r dy.
template <class T>
__global__ void batch_norm2d_backward_kernel(int64_t rows, int64_t C, int width, Normalization normalization,
                                             const T* x, const float* scales, const T* dy, const T* y,
                                             const float* offsets, const float* slopes, T* dx) {
  const Part part(rows, C, width);
  const int64_t c = part.c;
  if (c >= C) return;
  const float mean = normalization.mean(c), scale = scales[c] * normalization.inverse_deviation(c);
  const float offset = offsets ? offsets[c] : 0.0f, slope = offsets ? slopes[c] : 0.0f;
  for (int64_t row = part.first + part.thread / width; row < part.end(); row += cuda::block_threads / width) {
    const int64_t i = row * C + c;
    float value = gradient_at(i, dy, y);
    if (offsets) value = (value - offset) - slope * (cuda::to_f32(x[i]) - mean);
    dx[i] = cuda::from_f32<T>(scale * value);
  }
}

int64_t floats(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }
float* floats_of(Tensor& workspace) { return reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()); }

int64_t statistics_workspace(const BatchNorm2dStatistics& call) {
  const int64_t C = call.x.shape().back();
  return floats(2 * cuda::ColumnGroups(batch_norm_rows(call.x), C).groups * C);
}

void statistics_cuda(const BatchNorm2dStatistics& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = batch_norm_rows(call.x);
  const cuda::ColumnGroups groups(rows, C);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(statistics_kernel<T>, groups.grid(), cuda::block_threads, 0, cuda::compute_stream(), rows, C,
                 groups.width, call.x.data<T>(), floats_of(workspace), call.mean.mutable_data<float>(),
                 call.variance.mutable_data<float>());
  });
}

void forward_cuda(const BatchNorm2dForward& call) {
  const int64_t C = call.x.shape().back(), rows = batch_norm_rows(call.x);
  const cuda::ColumnGroups groups(rows, C);
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    cuda::launch(batch_norm2d_forward_kernel<T>, groups.grid(), cuda::block_threads, 0, cuda::compute_stream(), rows, C,
                 groups.width, Normalization(call.mean, call.variance, call.kind, rows), call.relu, call.x.data<T>(),
                 call.scale.data<float>(), call.shift.data<float>(), call.y.mutable_data<T>());
  });
}

int64_t backward_workspace(const BatchNorm2dBackward& call) {
  const int64_t C = call.x.shape().back();
  return floats((2 * cuda::ColumnGroups(batch_norm_rows(call.x), C).groups + 2) * C);
}

void backward_cuda(const BatchNorm2dBackward& call, Tensor& workspace) {
  const int64_t C = call.x.shape().back(), rows = batch_norm_rows(call.x);
  const cuda::ColumnGroups groups(rows, C);
  const Normalization normalization(call.mean, call.variance, call.kind, rows);
  float *partial = floats_of(workspace), *offsets = partial + 2 * groups.groups * C, *slopes = offsets + C;
  const auto pointer_or_null = [](Tensor& x) { return x.defined() ? x.mutable_data<float>() : nullptr; };
  cuda::for_float_type(call.x.dtype(), [&]<class T>() {
    const T *x = call.x.data<T>(), *dy = call.dy.data<T>();
    const T* y = call.relu_y.defined() ? call.relu_y.data<T>() : nullptr;
    if (call.needs_sums()) {
      cuda::launch(backward_sums_kernel<T>, groups.grid(), cuda::block_threads, 0, cuda::compute_stream(), rows, C,
                   groups.width, normalization, x, dy, y, partial, call.accumulate, pointer_or_null(call.dscale),
                   pointer_or_null(call.dshift), offsets, slopes);
    }
    if (!call.dx.defined()) return;
    const float* subtracted = call.kind.of_batch ? offsets : nullptr;
    cuda::launch(batch_norm2d_backward_kernel<T>, groups.grid(), cuda::block_threads, 0, cuda::compute_stream(), rows,
                 C, groups.width, normalization, x, call.scale.data<float>(), dy, y, subtracted, slopes,
                 call.dx.mutable_data<T>());
  });
}

REGISTER_KERNEL(batch_norm2d_statistics, cuda, "simple",
                {.run = statistics_cuda,
                 .supported = [](const BatchNorm2dStatistics& call) { return cuda::is_float(call.x); },
                 .workspace = statistics_workspace});
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
