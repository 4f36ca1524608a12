#include "kernels/gather_batch/gather_batch.h"

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// A block takes one image of `size` pixels, whose index its first thread computes, N pixels at a time.
template <int N, class Out>
__global__ void __launch_bounds__(cuda::block_threads)
    gather_batch_kernel(cuda::Previous previous, int64_t count, int64_t size, PixelScale scale, bool shuffle,
                        uint64_t seed, int64_t offset, const int32_t* place, const uint8_t* set,
                        const int32_t* set_labels, Out* images, int32_t* labels, int32_t* samples, int32_t* epoch) {
  previous.wait();
  __shared__ SharedArray<int32_t, 1> chosen;
  const int64_t n = blockIdx.x;
  if (threadIdx.x == 0) {
    const int64_t position = place[place_position] + offset + n;
    const Permutation order = shuffled_order(count, seed, place[place_epoch]);
    const auto sample = static_cast<int32_t>(shuffle ? order(static_cast<uint64_t>(position)) : position);
    chosen[0] = sample;
    labels[n] = set_labels[sample];
    samples[n] = sample;
    if (n == 0) *epoch = place[place_epoch];
  }
  __syncthreads();
  const auto* image = reinterpret_cast<const cuda::Pack<uint8_t, N>*>(set + int64_t{chosen[0]} * size);
  auto* to = reinterpret_cast<cuda::Pack<Out, N>*>(images + n * size);
  for (int64_t p = threadIdx.x; p < size / N; p += blockDim.x) {
    const cuda::Pack<uint8_t, N> in = image[p];
    if constexpr (std::is_same_v<Out, uint8_t>) {
      to[p] = in;
    } else {
      cuda::Pack<Out, N> out;
#pragma unroll
      for (int j = 0; j < N; ++j) out.value[j] = cuda::from_f32<Out>(normalized(cuda::to_f32(in.value[j]), scale));
      to[p] = out;
    }
  }
}

// `size`: Outs of an image.
template <int N, class Out>
void gather(const GatherBatch& call, int64_t size) {
  const auto threads = static_cast<unsigned>(std::clamp<int64_t>((size / N + 31) / 32 * 32, 32, cuda::block_threads));
  cuda::launch(gather_batch_kernel<N, Out>, static_cast<unsigned>(call.labels.size()), threads, 0,
               cuda::compute_stream(), call.set_labels.size(), size, call.scale, call.shuffle, call.seed, call.offset,
               call.place.data<int32_t>(), static_cast<const uint8_t*>(call.set_images.raw_data()),
               static_cast<const int32_t*>(call.set_labels.raw_data()),
               static_cast<Out*>(call.images.mutable_raw_data()), static_cast<int32_t*>(call.labels.mutable_raw_data()),
               call.samples.mutable_data<int32_t>(), call.epoch.mutable_data<int32_t>());
}

template <class Out>
void gather_as(const GatherBatch& call) {
  constexpr int N = 16 / sizeof(Out);
  const int64_t size = static_cast<int64_t>(call.images.bytes() / sizeof(Out)) / call.images.shape()[0];
  const bool in_packs = size % N == 0 &&
                        cuda::is_aligned<uint8_t, N>(static_cast<const uint8_t*>(call.set_images.raw_data())) &&
                        cuda::is_aligned<Out, N>(static_cast<const Out*>(call.images.raw_data()));
  in_packs ? gather<N, Out>(call, size) : gather<1, Out>(call, size);
}

void gather_batch_cuda(const GatherBatch& call) {
  if (call.images.dtype() == call.set_images.dtype()) {
    gather_as<uint8_t>(call);  // bytes, whatever they are
  } else {
    cuda::for_float_type(call.images.dtype(), [&]<class T>() { gather_as<T>(call); });
  }
}

bool supports(const GatherBatch& call) {
  return call.images.dtype() == call.set_images.dtype() ||
         (call.set_images.dtype() == DType::u8 && cuda::is_float(call.images));
}

REGISTER_KERNEL(gather_batch, cuda, "simple", {.run = gather_batch_cuda, .supported = supports});

}  // namespace
}  // namespace hs
