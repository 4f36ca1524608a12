// SampleWriter: one part of a data set, written sample by sample in the order of its indices. Every format is one
// implementation. Read next: data/formats/record_file.h.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "data/io/sample_source.h"

namespace hs {

// What is written appears at its path in finish(), whole; a writer that is destroyed without it leaves nothing behind.
// Both functions throw Error: io (the disk is full, a file cannot be written), usage (the calls do not fit the info).
class SampleWriter : NonCopyable {
 public:
  virtual ~SampleWriter() = default;

  // REQUIRES: `image` holds info.image_bytes() bytes, 0 <= label < info.classes, called info.count times
  void add(const uint8_t* image, int32_t label);
  void finish();  // REQUIRES: add() was called info.count times

 protected:
  explicit SampleWriter(SampleInfo info) : info_(std::move(info)) {}  // for the formats
  const SampleInfo& info() const { return info_; }                    // what is being written
  int64_t added() const { return added_; }                            // samples before the current one

 private:
  virtual void write_sample(const uint8_t* image, int32_t label) = 0;
  virtual void keep_files() = 0;

  const SampleInfo info_;
  int64_t added_ = 0;
};

// Writes the first `count` samples of a source and finishes. Calls copied(number so far) after each, if it is set; an
// exception from copied() ends the copying. REQUIRES: the writer is for `count` samples of the source's shape
void copy_samples(const SampleSource& source, int64_t count, SampleWriter& writer,
                  const std::function<void(int64_t done)>& copied = {});

}  // namespace hs
