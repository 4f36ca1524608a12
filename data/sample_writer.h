// SampleWriter: one part of a data set, written sample by sample in the order of its indices. Read next:
// data/formats/record_file.h.
#pragma once

#include <cstdint>
#include <functional>

#include "data/sample_source.h"

namespace hs {

// What is written appears at its path in finish(), whole; a writer that is destroyed without it leaves nothing behind.
// All functions throw Error: io (the disk is full, a file cannot be written).
class SampleWriter {
 public:
  virtual ~SampleWriter() = default;

  // REQUIRES: `image` holds the bytes of one image, 0 <= label < classes, called once for each sample of the set
  virtual void add(const uint8_t* image, int32_t label) = 0;
  virtual void finish() = 0;
};

// The first `count` samples of a source, finish() included. Calls copied(how many so far) after each, if there is one;
// what that throws ends the copying. REQUIRES: the writer is for so many samples of the source's shape
void copy_samples(const SampleSource& source, int64_t count, SampleWriter& writer,
                  const std::function<void(int64_t done)>& copied = {});

}  // namespace hs
