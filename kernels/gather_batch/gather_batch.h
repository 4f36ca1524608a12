// The batches of recorded steps: their graph gathers and shuffles them itself, from a set on the device.
#pragma once

#include "engine/batch.h"
#include "engine/kernel.h"

namespace hs {

// Where a group of steps begins, on the device, because a graph replays with the same host values: place (3) i32.
enum GroupPlace : int {
  place_epoch,
  place_position,  // of its first sample in the epoch
  place_entry,     // in the logs (StepLog)
  group_place,
};

// The batch that begins `offset` positions behind `place`, as a loader would give it; `set` is a ResidentSet's parts.
// images (N, H, W, C) of the set's type, as they are; or, of a u8 set, normalised: f32, f16 or bf16, the bits of
// normalize_image(). labels (N) of the set's type, samples (N) i32, epoch i32 scalar.
// REQUIRES: the epoch has its N positions
struct GatherBatch {
  const Tensor& set_images;  // ResidentSet::images
  const Tensor& set_labels;  // ResidentSet::labels
  const Tensor& place;
  const PixelScale& scale;  // of images that are normalised
  bool shuffle;             // ResidentSet::shuffle
  uint64_t seed;            // ResidentSet::seed
  int64_t offset;
  Tensor& images;
  Tensor& labels;
  Tensor& samples;
  Tensor& epoch;
  auto tensors() const { return tensor_list(set_images, set_labels, place, images, labels, samples, epoch); }
};
constinit inline Kernel<GatherBatch> gather_batch{"gather_batch"};

}  // namespace hs
