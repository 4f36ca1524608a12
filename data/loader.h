// Loader: batches of a Dataset, epoch after epoch. The order of epoch e depends on (seed, e) alone: position p of the
// epoch holds sample permute_index(p), computed when it is needed, so there is no order to store, save or restore.
// It gathers synchronously, inside next(). Not thread safe.
#pragma once

#include "data/dataset.h"
#include "engine/batch.h"
#include "engine/device.h"

namespace hs {

struct LoaderOptions {
  int64_t batch = 128;
  bool shuffle = true;
  uint64_t seed = 1;
  Device device = Device::cpu;
};

class Loader : public BatchSource {
 public:
  // `dataset` must outlive the loader. A batch larger than the set gives one batch per epoch, the whole set.
  // Throws Error: usage (options.batch < 1), bad_input (the set is empty).
  Loader(const Dataset& dataset, const LoaderOptions& options);
  Loader(Dataset&&, const LoaderOptions&) = delete;

  Batch next() override;
  int64_t samples() const override { return dataset_.count; }
  int64_t batches_per_epoch() const override;
  PixelScale pixel_scale() const override { return dataset_.scale; }

  // The next batch is the first of this epoch. REQUIRES: 0 <= epoch < 2^32
  void start_epoch(int64_t epoch);
  // Where the next batch comes from: its epoch, and its first position there (0 at the start of an epoch).
  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }

 private:
  int64_t sample_at(int64_t position) const;

  const Dataset& dataset_;
  LoaderOptions options_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
};

}  // namespace hs
