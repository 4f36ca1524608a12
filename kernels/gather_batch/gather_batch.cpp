#include "kernels/gather_batch/gather_batch.h"

#include <algorithm>

namespace hs {
namespace {

void gather_batch_cpu(const GatherBatch& call) {
  const int64_t bytes = call.set_images.size() / call.set_images.shape()[0];
  const int32_t* place = call.place.data<int32_t>();
  const uint8_t* from = call.set_images.data<uint8_t>();
  const int32_t* label = call.set_labels.data<int32_t>();
  uint8_t* to = call.images.mutable_data<uint8_t>();
  int32_t* labels = call.labels.mutable_data<int32_t>();
  int32_t* samples = call.samples.mutable_data<int32_t>();
  const Permutation order = shuffled_order(call.set_labels.size(), call.seed, place[place_epoch]);
  for (int64_t n = 0; n < call.labels.size(); ++n) {
    const int64_t position = place[place_position] + call.offset + n;
    const auto sample = call.shuffle ? static_cast<int64_t>(order(static_cast<uint64_t>(position))) : position;
    std::copy_n(from + sample * bytes, bytes, to + n * bytes);
    labels[n] = label[sample];
    samples[n] = static_cast<int32_t>(sample);
  }
  *call.epoch.mutable_data<int32_t>() = place[place_epoch];
}

REGISTER_KERNEL(gather_batch, cpu, "simple", {.run = gather_batch_cpu});

}  // namespace
}  // namespace hs
