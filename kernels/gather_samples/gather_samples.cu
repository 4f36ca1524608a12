// Gathers a batch from a data set in device memory; the slot is declared in engine/batch.h.
#include <cuda_runtime.h>

#include "engine/batch.h"
#include "engine/slots.h"
#include "kernels/cuda/cuda.cuh"

namespace hs {
namespace {

// T: 1 or 16 bytes. The batch has `total` of them.
template <class T>
__global__ void gather_kernel(cuda::Previous previous, uint32_t total, Divisor image, const T* set,
                              const int32_t* samples, T* out) {
  previous.wait();
  for (uint32_t i = cuda::global_thread32(); i < total; i += cuda::global_threads32()) {
    const auto [sample, at] = image.divide(i);
    out[i] = set[int64_t{samples[sample]} * image.divisor() + at];
  }
}

// `size`: Ts of an image.
template <class T>
void gather(int64_t images, int64_t size, const T* set, const int32_t* samples, T* out) {
  const int64_t step = images_per_launch("gather_samples", images, size);
  for (int64_t n = 0; n < images; n += step) {
    const int64_t total = std::min(step, images - n) * size;
    cuda::launch(gather_kernel<T>, cuda::blocks_for(total), cuda::block_threads, 0, cuda::compute_stream(),
                 static_cast<uint32_t>(total), Divisor(size), set, samples + n, out + n * size);
  }
}

void gather_samples_cuda(const GatherSamples& call) {
  const auto* from = static_cast<const uint8_t*>(call.set.raw_data());
  const int32_t* index = call.samples.data<int32_t>();
  auto* to = static_cast<uint8_t*>(call.out.mutable_raw_data());
  const int64_t images = call.samples.size(), bytes = static_cast<int64_t>(call.set.bytes()) / call.set.shape()[0];
  using Pack = cuda::Pack<uint8_t, 16>;
  if (bytes % 16 == 0 && cuda::is_aligned<uint8_t, 16>(from) && cuda::is_aligned<uint8_t, 16>(to)) {
    gather(images, bytes / 16, reinterpret_cast<const Pack*>(from), index, reinterpret_cast<Pack*>(to));
  } else {
    gather(images, bytes, from, index, to);
  }
}

REGISTER_KERNEL(gather_samples, cuda, "simple", {.run = gather_samples_cuda});

}  // namespace
}  // namespace hs
