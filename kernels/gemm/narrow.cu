// The product of a last layer, few rows by few columns, such as 64 images by 10 classes: variant "narrow". A library's
// tile is 64 or 128 columns wide, and mostly empty here; and as the rows fill one tile, it cuts the depth in parts and
// adds them in a second kernel. Here a block computes a row of C: its threads share the depth, each keeps all columns'
// sums in registers, and they meet in a fixed tree, first in each warp, then in shared memory. It has all logits of a
// sample then: where their targets are known, it adds the loss and its gradient, which need no kernel of their own.
// Rung 4 of the ladder in gemm.cuh says what to do with more.
#include <cuda_runtime.h>

#include "kernels/gemm/gemm.cuh"
#include "kernels/linear/linear.h"
#include "kernels/softmax_cross_entropy/softmax_cross_entropy.h"

namespace hs {
namespace {

using namespace cuda;

constexpr int most_columns = 16, most_rows = 256, warps = block_threads / 32;

// The loss of C's rows, all as in softmax_cross_entropy.h; labels: nullptr if it is not wanted.
template <class Out>
struct RowLoss {
  const int32_t* labels = nullptr;
  TargetRow<float> q{0, 1};
  const float* dloss;
  float *partial, *loss;  // partial: a place for each row
  Out* dlogits;
};

__device__ unsigned rows_with_a_loss;  // 0 between the launches, of which there is one at a time

// The loss of a row, whose logit `thread` this thread of the first warp has if there is one. Writes dlogits.
template <class Out>
__device__ float loss_of_row(const RowLoss<Out>& of, int64_t row, int N, float logit) {
  const int j = threadIdx.x, label = of.labels[row];
  const float largest = warp_max(j < N ? logit : -INFINITY), centred = logit - largest;
  const float power = j < N ? expf(centred) : 0.0f, sum = warp_sum(power);
  const float target = j == label ? of.q.label : of.q.others;
  if (j < N) {
    of.dlogits[row * N + j] = from_f32<Out>((power / sum - target) * (*of.dloss / static_cast<float>(gridDim.x)));
  }
  const float products = warp_sum(j < N && target != 0 ? target * centred : 0.0f);
  return label >= 0 && label < N ? logf(sum) - products : NAN;
}

template <class In, class Out>
__global__ void __launch_bounds__(block_threads)
    narrow_kernel(Previous previous, GemmProblem<In, Out> g, RowLoss<Out> of) {
  previous.wait();
  __shared__ SharedArray<float, warps * most_columns> sums;
  const int thread = threadIdx.x, N = static_cast<int>(g.N);
  const int64_t row = blockIdx.x;
  float sum[most_columns] = {};
  for (int64_t k = thread; k < g.K; k += block_threads) {
    const float a = to_f32(g.a[row * g.K + k]);
#pragma unroll
    for (int j = 0; j < most_columns; ++j) {
      if (j < N) sum[j] = fmaf(a, to_f32(g.b[k * N + j]), sum[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < most_columns; ++j) {
    if (j >= N) break;
    const float total = warp_sum(sum[j]);
    if (thread % 32 == 0) sums[thread / 32 * most_columns + j] = total;
  }
  __syncthreads();
  Out result{};
  if (thread < N) {
    float total[warps];
#pragma unroll
    for (int i = 0; i < warps; ++i) total[i] = sums[i * most_columns + thread];
    const float all = ((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7]));
    result = gemm_element(g, row, thread, all);
    g.c[row * N + thread] = result;
  }
  if (of.labels == nullptr) return;
  float loss = thread < 32 ? loss_of_row(of, row, N, to_f32(result)) : 0.0f;
  if (thread > 0) loss = 0;
  if (grid_sum(loss, of.partial, &rows_with_a_loss)) *of.loss = loss / static_cast<float>(gridDim.x);
}

template <class In, class Out>
void run_narrow(const Gemm& call, const RowLoss<Out>& of) {
  launch(narrow_kernel<In, Out>, static_cast<unsigned>(call.c.shape()[0]), block_threads, 0, compute_stream(),
         gemm_problem<In, Out>(call), of);
}

void gemm_narrow(const Gemm& call) {
  for_gemm_types(call, [&]<class In, class Out>() { run_narrow<In, Out>(call, {}); });
}

Gemm product_of(const LinearWithLoss& call) { return {.a = call.x, .b = call.weight, .bias = call.bias, .c = call.y}; }

void with_loss_narrow(const LinearWithLoss& call, Tensor& workspace) {
  for_float_type(call.x.dtype(), [&]<class T>() {
    const RowLoss<T> of{call.labels.data<int32_t>(),     {call.smoothing, call.y.shape()[1]},
                        call.dloss.data<float>(),        reinterpret_cast<float*>(workspace.mutable_data<uint8_t>()),
                        call.loss.mutable_data<float>(), call.dlogits.mutable_data<T>()};
    run_narrow<T, T>(product_of(call), of);
  });
}

bool is_narrow(const Gemm& call) {
  const GemmOptions& options = call.options;
  return gemm_types_supported(call) && call.c.size() > 0 && call.c.shape()[0] <= most_rows &&
         call.c.shape()[1] <= most_columns && !options.transpose_a && !options.transpose_b &&
         options.epilogue == Epilogue::none;
}

// Below cuBLASLt: no GPU has measured the two side by side yet.
REGISTER_KERNEL(gemm, cuda, "narrow", {.run = gemm_narrow, .supported = is_narrow, .rank = 35});
REGISTER_KERNEL(
    linear_with_loss, cuda, "narrow",
    {.run = with_loss_narrow,
     .supported =
         [](const LinearWithLoss& call) { return call.y.dtype() == call.x.dtype() && is_narrow(product_of(call)); },
     .workspace = [](const LinearWithLoss& call) { return call.y.shape()[0] * static_cast<int64_t>(sizeof(float)); },
     .rank = only_if_forced});

}  // namespace
}  // namespace hs
