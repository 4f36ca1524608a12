#include "kernels/gather_batch/gather_batch.h"

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// T: 1 or 16 bytes, of which an image has `size`. A block copies one image, whose index its first thread computes.
template <class T>
__global__ void gather_batch_kernel(int64_t count, int64_t size, bool shuffle, uint64_t seed, int64_t offset,
                                    const int32_t* place, const T* set, const int32_t* set_labels, T* images,
                                    int32_t* labels, int32_t* samples, int32_t* epoch) {
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
  const T* image = set + int64_t{chosen[0]} * size;
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) images[n * size + i] = image[i];
}

template <class T>
void gather(const GatherBatch& call, int64_t size, const T* set, T* images) {
  const auto threads = static_cast<unsigned>(std::clamp<int64_t>((size + 31) / 32 * 32, 32, cuda::block_threads));
  cuda::launch(gather_batch_kernel<T>, static_cast<unsigned>(call.labels.size()), threads, 0, cuda::compute_stream(),
               call.set_labels.size(), size, call.shuffle, call.seed, call.offset, call.place.data<int32_t>(), set,
               call.set_labels.data<int32_t>(), images, call.labels.mutable_data<int32_t>(),
               call.samples.mutable_data<int32_t>(), call.epoch.mutable_data<int32_t>());
}

void gather_batch_cuda(const GatherBatch& call) {
  const int64_t bytes = call.set_images.size() / call.set_images.shape()[0];
  const uint8_t* set = call.set_images.data<uint8_t>();
  uint8_t* images = call.images.mutable_data<uint8_t>();
  using Pack = cuda::Pack<uint8_t, 16>;
  if (bytes % 16 == 0 && cuda::is_aligned<uint8_t, 16>(set) && cuda::is_aligned<uint8_t, 16>(images)) {
    gather(call, bytes / 16, reinterpret_cast<const Pack*>(set), reinterpret_cast<Pack*>(images));
  } else {
    gather(call, bytes, set, images);
  }
}

REGISTER_KERNEL(gather_batch, cuda, "simple", {.run = gather_batch_cuda});

}  // namespace
}  // namespace hs
