// The interface between the training loop and a loader, here because models/ and data/ do not depend on each other.
#pragma once

#include "engine/host_device.h"
#include "engine/tensor.h"

namespace hs {

struct Batch {
  Tensor images;        // (N, H, W, C) u8, raw pixels, or f32 if the source has normalised them
  Tensor labels;        // (N) i32
  Tensor samples = {};  // (N) i32, their indices in the set; undefined if the source has none
  Tensor epoch = {};    // i32 scalar, from 0; undefined as `samples`. A tensor, as a captured step freezes host values
};

// How a data set's pixels are normalised to f32.
struct PixelScale {
  float mean = 0;
  float deviation = 1;
};
HS_HOST_DEVICE inline float normalized(float pixel, const PixelScale& scale) {
  return (pixel / 255.0f - scale.mean) / scale.deviation;
}

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The next batch; epochs follow each other without a gap, and the last batch of an epoch may be smaller.
  // Throws Error if reading fails.
  virtual Batch next() = 0;
  virtual int64_t samples() const = 0;            // of one epoch
  virtual int64_t batches_per_epoch() const = 0;  // ceil(samples / batch)
  virtual PixelScale pixel_scale() const = 0;
};

}  // namespace hs
