#include "data/sample_writer.h"

#include <vector>

namespace hs {

void copy_samples(const SampleSource& source, int64_t count, SampleWriter& writer,
                  const std::function<void(int64_t done)>& copied) {
  std::vector<uint8_t> image(static_cast<size_t>(source.info().image_bytes()));
  for (int64_t i = 0; i < count; ++i) {
    source.read(i, image.data());
    writer.add(image.data(), source.label(i));
    if (copied) copied(i + 1);
  }
  writer.finish();
}

}  // namespace hs
