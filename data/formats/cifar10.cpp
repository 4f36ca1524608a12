#include "data/formats/cifar10.h"

#include <array>
#include <string>
#include <vector>

#include "data/io/mapped_file.h"
#include "engine/check.h"

namespace hs {
namespace {

constexpr int64_t plane = cifar10_side * cifar10_side;

using Files = std::vector<std::unique_ptr<MappedFile>>;
using Record = std::array<uint8_t, cifar10_record_bytes>;

class Cifar10Source : public SampleSource {
 public:
  Cifar10Source(SampleInfo info, Files files, std::vector<uint8_t> labels, int64_t records_per_file)
      : SampleSource(std::move(info)),
        files_(std::move(files)),
        labels_(std::move(labels)),
        records_per_file_(records_per_file) {}

 private:
  void read_sample(int64_t index, uint8_t* image) const override {
    Record record;
    files_[static_cast<size_t>(index / records_per_file_)]->copy(
        static_cast<uint64_t>(index % records_per_file_ * cifar10_record_bytes), record.size(), record.data());
    cifar10_to_nhwc(record.data() + 1, image);
  }
  int32_t sample_label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }

  const Files files_;
  const std::vector<uint8_t> labels_;
  const int64_t records_per_file_;
};

}  // namespace

void cifar10_to_nhwc(const uint8_t* planes, uint8_t* pixels) {
  for (int64_t i = 0; i < plane; ++i) {
    for (int64_t c = 0; c < 3; ++c) pixels[3 * i + c] = planes[c * plane + i];
  }
}

std::unique_ptr<SampleSource> open_cifar10(const std::filesystem::path& folder, bool training,
                                           int64_t records_per_file) {
  std::vector<std::string> names = {"test_batch.bin"};
  if (training) {
    names = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
  }
  const auto expected = static_cast<uint64_t>(records_per_file * cifar10_record_bytes);
  Files files;
  std::vector<uint8_t> labels;
  for (const std::string& name : names) {
    files.push_back(std::make_unique<MappedFile>(folder / name));
    const MappedFile& file = *files.back();
    if (file.size() != expected) {
      fail(ExitCode::bad_input, "{}: {} bytes, expected {} x {} = {}; `data/get cifar10` downloads it again",
           file.name(), file.size(), records_per_file, cifar10_record_bytes, expected);
    }
    for (int64_t record = 0; record < records_per_file; ++record) {
      uint8_t label = 0;
      file.copy(static_cast<uint64_t>(record * cifar10_record_bytes), 1, &label);
      if (label > 9) {
        fail(ExitCode::bad_input, "{}: label {} of record {}, expected 0 to 9; `data/get cifar10` downloads it again",
             file.name(), label, record);
      }
      labels.push_back(label);
    }
  }
  SampleInfo info{{cifar10_side, cifar10_side, 3}, "cifar10", fmt::format("CIFAR-10 in {}", printable(folder))};
  info.count = std::ssize(labels);
  info.classes = 10;
  info.scale = cifar10_scale;
  return std::make_unique<Cifar10Source>(std::move(info), std::move(files), std::move(labels), records_per_file);
}

}  // namespace hs
