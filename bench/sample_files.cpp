#include "bench/sample_files.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "data/image_folder.h"
#include "engine/check.h"

namespace hs::bench {
namespace {

namespace fs = std::filesystem;

fs::path make_folder() {
  std::string name = (fs::temp_directory_path() / "halfstep-bench-XXXXXX").string();
  if (!mkdtemp(name.data())) fail(ExitCode::io, "{}: cannot be created: {}", name, std::strerror(errno));
  return name;
}

}  // namespace

SampleFiles::SampleFiles(const SampleSource& train, const SampleSource& test) : folder_(make_folder()) {
  try {
    train_ = write(train, "train");
    test_ = write(test, "test");
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    throw;
  }
}

SampleFiles::~SampleFiles() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::unique_ptr<SampleSource> SampleFiles::write(const SampleSource& source, const char* part) const {
  const SampleInfo& info = source.info();
  const auto writer =
      write_image_folder(folder_ / part, info, info.channels == 1 ? ImageFormat::pgm : ImageFormat::png);
  std::vector<uint8_t> image(static_cast<size_t>(info.image_bytes()));
  for (int64_t i = 0; i < info.count; ++i) {
    source.read(i, image.data());
    writer->add(image.data(), source.label(i));
  }
  writer->finish();
  return open_image_folder(folder_ / part, {info.name, info.scale});
}

}  // namespace hs::bench
