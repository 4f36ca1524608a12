// Sources in memory, and sources that are a subset of another one. Read next: data/open_dataset.h (sets and formats),
// data/loader/loader.h (batches).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/io/sample_source.h"
#include "engine/random.h"

namespace hs {

// Labelled samples in memory, raw bytes; those of a text overlap.
class MemorySource : public SampleSource {
 public:
  // The count in `info` is ignored: there are as many samples as labels. REQUIRES: as many images as labels. Each
  // begins `stride` bytes after the one before; 0: where that ends.
  MemorySource(SampleInfo info, std::vector<uint8_t> images, std::vector<int32_t> labels, int64_t stride = 0);

  bool is_in_memory() const override { return true; }
  const std::vector<uint8_t>& images() const { return images_; }  // (count, rows, columns, channels)
  const std::vector<int32_t>& labels() const { return labels_; }  // (count)

 private:
  void read_sample(int64_t index, uint8_t* image) const override;
  int32_t sample_label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }

  const std::vector<uint8_t> images_;
  const std::vector<int32_t> labels_;
  const int64_t stride_;
};

// A copy of samples (N, F), (N, H, W) or (N, H, W, C) in u8 or f32, and of their labels (N): classes in i32, or
// the targets of a regression in f32. Shape, types and count in `info` are ignored; classes: 0 is one more than the
// largest label. Throws Error (bad_input) that begins with the name of what is wrong: a shape, a type, a label, a value
// that is not finite.
MemorySource from_tensors(SampleInfo info, const Tensor& samples, const Tensor& labels,
                          const std::string& samples_name = "samples", const std::string& labels_name = "labels");

// Copies the first `count` samples of a source, or all if there are fewer. Throws what reading throws.
MemorySource load_samples(const SampleSource& source, int64_t count = INT64_MAX);

// Of the samples that a part is cut from: as in the source, or mixed, in an order that is the same in every run: so
// each part of a set that is ordered, by class for example, resembles the whole.
enum class SampleOrder { as_it_is, mixed };

// A view of `count` samples of a source, from `first` on, or of those of them that there are.
class PartOfSamples : public SampleSource {
 public:
  // REQUIRES: 0 <= first, 0 <= count, first <= source->info().count
  PartOfSamples(std::shared_ptr<const SampleSource> source, int64_t first, int64_t count, SampleOrder order);
  PartOfSamples(const SampleSource& source, int64_t first, int64_t count,
                SampleOrder order);  // `source` must outlive it
  // The samples of these indices. REQUIRES: each below source->info().count
  PartOfSamples(std::shared_ptr<const SampleSource> source, std::vector<int64_t> indices);

  bool is_in_memory() const override { return source_->is_in_memory(); }

 private:
  void read_sample(int64_t index, uint8_t* image) const override { source_->read_through(place_of(index), image); }
  int32_t sample_label(int64_t index) const override { return source_->label(place_of(index)); }
  int64_t place_of(int64_t index) const {
    if (!indices_.empty()) return indices_[static_cast<size_t>(index)];
    return is_mixed_ ? static_cast<int64_t>(order_(static_cast<uint64_t>(first_ + index))) : first_ + index;
  }

  const std::shared_ptr<const SampleSource> source_;
  const int64_t first_;
  const bool is_mixed_;
  const Permutation order_;
  const std::vector<int64_t> indices_;  // empty: as the order says
};

// What split_samples() returns.
struct TrainAndTest {
  std::unique_ptr<SampleSource> train, test;  // views of one set
};
// Cuts off about this fraction of a set as its test part. Where a sample goes follows from its checksum() alone, so
// that none changes sides when others are added or taken away; but for the only one of a part, because each has one at
// least. Both are mixed. REQUIRES: two samples or more, 0 < fraction < 1. Throws what checksum() throws.
TrainAndTest split_samples(const std::shared_ptr<const SampleSource>& all, double fraction);

}  // namespace hs
