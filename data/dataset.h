// Dataset: labelled images in memory, raw bytes, and how any other source becomes one. MNIST from IDX files where they
// are found, else generated digits of the same shape (data/synthetic.h), so that every program runs without a download
// and says what it ran on. Read next: data/open_dataset.h (other sets and formats), data/loader.h (batches).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/sample_source.h"
#include "engine/batch.h"

namespace hs {

struct Dataset {
  std::string name;  // "mnist" or "synthetic digits"
  bool synthetic = false;
  int64_t count = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t channels = 1;
  int classes = 10;
  PixelScale scale;
  std::vector<uint8_t> images;  // (count, rows, columns, channels)
  std::vector<int32_t> labels;  // (count)
};

struct DatasetPair {
  Dataset train;
  Dataset test;
  std::string source;  // one sentence for the user: what the data is and where it came from
};

// MNIST: the four files in `directory` (--data DIR), else in $HALFSTEP_DATA/mnist, else in $HOME/.cache/halfstep/mnist;
// both spellings of the names, with or without .gz. If the last two places hold none of them: generated digits, and
// `source` says where it looked. A limit keeps the first so many samples, 0 keeps all.
// Throws Error: usage (a limit is negative or larger than the set), io (a file is missing from `directory`, or a place
// holds some of the four only), bad_input (damaged files, or files that do not belong together).
DatasetPair load_mnist(const std::optional<std::filesystem::path>& directory, int64_t train_limit, int64_t test_limit);

// A Dataset as a source, its own or somebody else's. Read the pixels directly where you can: this copies them.
class MemorySource : public SampleSource {
 public:
  // `description`: see SampleInfo. REQUIRES: as many images and labels as `set` says
  MemorySource(Dataset set, std::string description);
  MemorySource(std::shared_ptr<const Dataset> set, std::string description);
  const Dataset& dataset() const { return *set_; }
  bool is_in_memory() const override { return true; }

 private:
  void read_sample(int64_t index, uint8_t* image) const override;
  int32_t sample_label(int64_t index) const override { return set_->labels[static_cast<size_t>(index)]; }

  const std::shared_ptr<const Dataset> set_;
};

// The first `limit` samples of a source (0: all). `name` as for load_all(). Throws Error (usage).
std::unique_ptr<SampleSource> first_samples(std::unique_ptr<SampleSource> source, int64_t limit, const char* name);

// The first `count` samples of a source that outlives this, or all if there are fewer; they stay where they are.
std::unique_ptr<SampleSource> view_of_first(const SampleSource& source, int64_t count);

// All samples of a source in memory, or the first `limit` of them (0: all). `name` is that of the limit in messages.
// Throws Error: usage (the limit is negative or larger than the set), and what reading throws.
Dataset load_all(const SampleSource& source, int64_t limit = 0, const char* name = "limit");

}  // namespace hs
