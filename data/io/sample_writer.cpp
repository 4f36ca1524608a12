#include "data/io/sample_writer.h"

#include <vector>

#include "engine/check.h"

namespace hs {

void SampleWriter::add(const uint8_t* image, int32_t label) {
  check(added_ < info_.count, "{}: more than the {} samples of the set", info_.name, info_.count);
  check(label >= 0 && label < info_.classes, "{}: label {} of sample {}, expected 0 to {}", info_.name, label, added_,
        info_.classes - 1);
  write_sample(image, label);
  ++added_;
}

void SampleWriter::finish() {
  check(added_ == info_.count, "{}: {} of {} samples were added", info_.name, added_, info_.count);
  keep_files();
}

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
