// Gathers a batch from a data set in device memory; the slot is declared in engine/batch.h.
#include <cuda_runtime.h>

#include "engine/batch.h"
#include "engine/slots.h"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// T: 1 or 16 bytes. An image has `size` of them, the batch has `total`.
template <class T>
__global__ void gather_kernel(int64_t total, int64_t size, const T* set, const int32_t* samples, T* out) {
  for (int64_t i = cuda::global_thread(); i < total; i += cuda::global_threads()) {
    out[i] = set[samples[i / size] * size + i % size];
  }
}

void gather_samples_cuda(const GatherSamples& call) {
  const uint8_t* from = call.set.data<uint8_t>();
  const int32_t* index = call.samples.data<int32_t>();
  uint8_t* to = call.out.mutable_data<uint8_t>();
  const int64_t size = call.out.size(), bytes = call.set.size() / call.set.shape()[0];
  using Pack = cuda::Pack<uint8_t, 16>;
  if (bytes % 16 == 0 && cuda::is_aligned<uint8_t, 16>(from) && cuda::is_aligned<uint8_t, 16>(to)) {
    const int64_t packs = size / 16;
    cuda::launch(gather_kernel<Pack>, cuda::blocks_for(packs), cuda::block_threads, 0, cuda::compute_stream(), packs,
                 bytes / 16, reinterpret_cast<const Pack*>(from), index, reinterpret_cast<Pack*>(to));
    return;
  }
  cuda::launch(gather_kernel<uint8_t>, cuda::blocks_for(size), cuda::block_threads, 0, cuda::compute_stream(), size,
               bytes, from, index, to);
}

REGISTER_KERNEL(gather_samples, cuda, "simple", {.run = gather_samples_cuda});

}  // namespace
}  // namespace hs
