// Small data sets for the tests of formats.
#pragma once

#include <functional>
#include <vector>

#include "data/io/sample_source.h"
#include "data/io/sample_writer.h"

namespace hs::test {

inline SampleInfo info_for(int64_t count, ImageShape shape = {3, 2, 1}, int classes = 10) {
  SampleInfo info{shape, "numbered", {}};
  info.count = count;
  info.classes = classes;
  info.scale = {0.25f, 0.5f};
  return info;
}

// Pixels vary enough between positions and samples that a misplaced one is detected.
inline std::vector<uint8_t> image_of(const SampleInfo& info, int64_t index) {
  std::vector<uint8_t> image(static_cast<size_t>(info.image_bytes()));
  for (size_t i = 0; i < image.size(); ++i) {
    image[i] = static_cast<uint8_t>((static_cast<uint64_t>(index) * image.size() + i) * 0x9e3779b97f4a7c15u >> 40);
  }
  return image;
}
inline int32_t label_of(const SampleInfo& info, int64_t index) {
  return static_cast<int32_t>((index * 7 + 3) % info.classes);
}

inline void write_all(SampleWriter& writer, const SampleInfo& info) {
  for (int64_t i = 0; i < info.count; ++i) writer.add(image_of(info, i).data(), label_of(info, i));
  writer.finish();
}

inline std::vector<uint8_t> read_image(const SampleSource& source, int64_t index) {
  std::vector<uint8_t> image(static_cast<size_t>(source.info().image_bytes()));
  source.read(index, image.data());
  return image;
}

// The index of the first sample that is not what write_all() wrote, or -1.
inline int64_t first_wrong(const SampleSource& source, const SampleInfo& info) {
  for (int64_t i = info.count - 1; i >= 0; --i) {  // backwards: results must not depend on the order
    if (read_image(source, i) != image_of(info, i) || source.label(i) != label_of(info, i)) return i;
  }
  return -1;
}

inline bool same_shape(const SampleInfo& a, const SampleInfo& b) {
  return a.count == b.count && a.shape() == b.shape() && a.classes == b.classes;
}

}  // namespace hs::test
