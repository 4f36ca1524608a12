#include "kernels/gather_batch/gather_batch.h"

#include <algorithm>

#include "kernels/cpu/elements.h"

namespace hs {
namespace {

void gather_batch_cpu(const GatherBatch& call) {
  const int64_t pixels = call.set_images.size() / call.set_images.shape()[0];
  const auto bytes = pixels * static_cast<int64_t>(size_of(call.set_images.dtype()));
  const int32_t* place = call.place.data<int32_t>();
  const auto* from = static_cast<const uint8_t*>(call.set_images.raw_data());
  const auto* label = static_cast<const int32_t*>(call.set_labels.raw_data());
  auto* labels = static_cast<int32_t*>(call.labels.mutable_raw_data());
  int32_t* samples = call.samples.mutable_data<int32_t>();
  const auto normalize = [scale = call.scale](uint8_t pixel) { return normalized(pixel, scale); };
  const Permutation order = shuffled_order(call.set_labels.size(), call.seed, place[place_epoch]);
  for (int64_t n = 0; n < call.labels.size(); ++n) {
    const int64_t position = place[place_position] + call.offset + n;
    const auto sample = call.shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(position))) : position;
    const uint8_t* image = from + sample * bytes;
    if (call.images.dtype() == call.set_images.dtype()) {
      std::copy_n(image, bytes, static_cast<uint8_t*>(call.images.mutable_raw_data()) + n * bytes);
    } else {
      for_float_type(call.images.dtype(), [&]<class T>() {
        map_elements(pixels, normalize, call.images.mutable_data<T>() + n * pixels, image);
      });
    }
    labels[n] = label[sample];
    samples[n] = static_cast<int32_t>(sample);
  }
  *call.epoch.mutable_data<int32_t>() = place[place_epoch];
}

bool supports(const GatherBatch& call) {
  return call.images.dtype() == call.set_images.dtype() ||
         (call.set_images.dtype() == DType::u8 && is_float(call.images));
}

REGISTER_KERNEL(gather_batch, cpu, "simple", {.run = gather_batch_cpu, .supported = supports});

}  // namespace
}  // namespace hs
