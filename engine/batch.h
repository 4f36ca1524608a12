// The interface between the training loop and a loader, here because models/ and data/ do not depend on each other.
#pragma once

#include "engine/host_device.h"
#include "engine/random.h"
#include "engine/tensor.h"

namespace hs {

// N samples, as a BatchSource delivers them.
struct Batch {
  Tensor images;  // (N, H, W, C) u8 pixels, or a float type if normalised; of a text: (N, 1, T + 1, 1) u8 windows; f32
                  // values as they are, vectors among them: (N, 1, F, 1)
  Tensor labels;  // (N) i32 classes, or f32 targets of a regression
  Tensor samples = {};  // (N) i32, their indices in the set; undefined if the source has none
  Tensor epoch = {};    // i32 scalar, from 0; undefined as `samples`. A tensor, as a captured step freezes host values
};

// How a data set's pixels are normalised to f32.
struct PixelScale {
  float mean = 0;       // mean of pixel / 255 over the training set
  float deviation = 1;  // its standard deviation

  bool operator==(const PixelScale&) const = default;
};
HS_HOST_DEVICE inline float normalized(float pixel, const PixelScale& scale) {  // pixel: 0 to 255
  return (pixel / 255.0f - scale.mean) / scale.deviation;
}

// The order of an epoch: its position p is sample shuffled_order(samples, seed, epoch)(p).
HS_HOST_DEVICE constexpr Permutation shuffled_order(int64_t samples, uint64_t seed, int64_t epoch) {
  return {static_cast<uint64_t>(samples),
          RandomStream{seed, RandomPurpose::shuffle, 0, static_cast<uint32_t>(epoch), 0}};
}

// A data set on the device, from which recorded steps take their batches themselves.
struct ResidentSet {
  Tensor images;         // (samples, H, W, C) u8, or f32 values as they are, as in Batch
  Tensor labels;         // (samples) i32, or f32
  int64_t batch = 0;     // samples per batch
  bool shuffle = false;  // otherwise position p is sample p
  uint64_t seed = 0;     // key of shuffled_order()
};

// Where a batch begins: the epoch, from 0, and its first position there.
struct BatchPlace {
  int64_t epoch = 0;
  int64_t position = 0;
};

class BatchSource {  // the batches of one data set; not thread safe
 public:
  virtual ~BatchSource() = default;
  // The next batch; epochs follow each other without a gap, and the last batch of an epoch may be smaller.
  // Throws Error if reading fails.
  virtual Batch next() = 0;
  virtual int64_t samples() const = 0;            // of one epoch
  virtual int64_t batches_per_epoch() const = 0;  // ceil(samples / batch)
  // Samples of every batch but an epoch's last. Asked for by a rank, which does not see all batches.
  virtual int64_t batch() const { return samples(); }
  virtual PixelScale pixel_scale() const = 0;  // how to normalise u8 images
  // The set, if it is on the device; nullptr: next() alone gives its batches.
  virtual const ResidentSet* resident() { return nullptr; }
  // As if next() had been called `batches` times: returns where the first of them begins. REQUIRES: resident(); the
  // epoch has that many full batches left
  virtual BatchPlace skip(int64_t /*batches*/) { return {}; }
};

}  // namespace hs
