#include "data/formats/cifar10.h"

#include <string>
#include <vector>

#include "data/io/memory_source.h"
#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs {

std::unique_ptr<SampleSource> open_cifar10(const std::filesystem::path& folder, bool training,
                                           int64_t records_per_file) {
  std::vector<std::string> names = {"test_batch.bin"};
  if (training) {
    names = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
  }
  constexpr int64_t plane = cifar10_side * cifar10_side;
  const auto expected = static_cast<uint64_t>(records_per_file * cifar10_record_bytes);
  std::vector<uint8_t> bytes, images;
  std::vector<int32_t> labels;
  for (const std::string& name : names) {
    const InputFile file(folder / name);
    uint64_t size = file.size();
    if (size == expected) {
      bytes.resize(size);
      size = file.read_at(0, bytes.data(), size);
    }
    if (size != expected) {
      fail(ExitCode::bad_input,
           "{}: {} bytes, expected {} x {} = {}; `halfstep-bench data get cifar10` downloads it again", file.name(),
           size, records_per_file, cifar10_record_bytes, expected);
    }
    const size_t before = images.size(), more = static_cast<size_t>(3 * plane * records_per_file);
    images.reserve(names.size() * more);
    images.resize(before + more);
    uint8_t* pixel = images.data() + before;
    for (int64_t record = 0; record < records_per_file; ++record) {
      const uint8_t* planes = bytes.data() + record * cifar10_record_bytes;
      const uint8_t label = *planes++;
      if (label > 9) {
        fail(ExitCode::bad_input,
             "{}: label {} of record {}, expected 0 to 9; `halfstep-bench data get cifar10` downloads it again",
             file.name(), label, record);
      }
      labels.push_back(label);
      for (int64_t i = 0; i < plane; ++i) {
        for (int64_t c = 0; c < 3; ++c) *pixel++ = planes[c * plane + i];
      }
    }
  }
  SampleInfo info{{cifar10_side, cifar10_side, 3}, "cifar10", fmt::format("CIFAR-10 in {}", printable(folder))};
  info.classes = 10;
  info.scale = cifar10_scale;
  return std::make_unique<MemorySource>(std::move(info), std::move(images), std::move(labels));
}

}  // namespace hs
