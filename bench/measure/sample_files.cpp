#include "bench/measure/sample_files.h"

#include "data/formats/image_folder.h"
#include "data/io/sample_writer.h"

namespace hs::bench::measure {

SampleFiles::SampleFiles(const SampleSource& train, const SampleSource& test)
    : train_(write(train, "train")), test_(write(test, "test")) {}

std::unique_ptr<SampleSource> SampleFiles::write(const SampleSource& source, const char* part) const {
  const SampleInfo& info = source.info();
  const auto writer = write_image_folder(folder_.path() / part, info,
                                         info.channels == 1 ? ImageFormat::pgm : ImageFormat::png, Lifetime::temporary);
  copy_samples(source, info.count, *writer);
  return open_image_folder(folder_.path() / part, {info.name, info.scale});
}

}  // namespace hs::bench::measure
