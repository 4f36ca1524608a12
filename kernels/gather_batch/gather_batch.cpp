#include "kernels/gather_batch/gather_batch.h"

#include <algorithm>

#include "kernels/cpu/elements.h"

namespace hs {
namespace {

void gather_batch_cpu(const GatherBatch& call) {
  const int64_t pixels = call.set_images.size() / call.set_images.shape()[0];
  const int32_t* place = call.place.data<int32_t>();
  const uint8_t* from = call.set_images.data<uint8_t>();
  const int32_t* label = call.set_labels.data<int32_t>();
  int32_t* labels = call.labels.mutable_data<int32_t>();
  int32_t* samples = call.samples.mutable_data<int32_t>();
  const auto normalize = [scale = call.scale](uint8_t pixel) { return normalized(pixel, scale); };
  const Permutation order = shuffled_order(call.set_labels.size(), call.seed, place[place_epoch]);
  for (int64_t n = 0; n < call.labels.size(); ++n) {
    const int64_t position = place[place_position] + call.offset + n;
    const auto sample = call.shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(position))) : position;
    const uint8_t* image = from + sample * pixels;
    if (call.images.dtype() == DType::u8) {
      std::copy_n(image, pixels, call.images.mutable_data<uint8_t>() + n * pixels);
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

bool supports(const GatherBatch& call) { return call.images.dtype() == DType::u8 || is_float(call.images); }

REGISTER_KERNEL(gather_batch, cpu, "simple", {.run = gather_batch_cpu, .supported = supports});

}  // namespace
}  // namespace hs
