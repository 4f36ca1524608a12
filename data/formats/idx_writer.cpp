// The writing half of data/formats/idx.h.
#include "data/formats/idx.h"
#include "engine/check.h"
#include "engine/files/endian.h"
#include "engine/files/output_file.h"

namespace hs {
namespace {

class IdxWriter : public SampleWriter {
 public:
  IdxWriter(const std::filesystem::path& images, const std::filesystem::path& labels, const SampleInfo& info)
      : SampleWriter(info), wide_(info.classes > 256) {
    for (const auto& path : {images, labels}) files_.emplace_back(path);
    const auto count = static_cast<uint32_t>(info.count);
    check(info.count == count, "{} samples do not fit into an IDX file", info.count);
    put(files_[0], {0x00000803, count, static_cast<uint32_t>(info.rows), static_cast<uint32_t>(info.columns)});
    put(files_[1], {wide_ ? 0x00000b01u : 0x00000801u, count});
  }

 private:
  void write_sample(const uint8_t* image, int32_t label) override {
    files_[0].write(image, static_cast<size_t>(info().image_bytes()));
    const uint8_t bytes[2] = {static_cast<uint8_t>(label >> 8), static_cast<uint8_t>(label)};
    files_[1].write(wide_ ? bytes : bytes + 1, wide_ ? 2 : 1);
  }

  void keep_files() override { keep_all(files_); }

  static void put(OutputFile& file, std::initializer_list<uint32_t> words) {
    for (const uint32_t word : words) {
      uint8_t bytes[4];
      put_big_endian(bytes, word);
      file.write(bytes, sizeof(bytes));
    }
  }

  const bool wide_;
  std::deque<OutputFile> files_;  // images, labels
};

}  // namespace

std::unique_ptr<SampleWriter> write_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                                        const SampleInfo& info) {
  if (info.channels != 1) {
    fail(ExitCode::usage, "idx holds images of 1 channel, but {} has {}; choose another format", info.name,
         info.channels);
  }
  return std::make_unique<IdxWriter>(images, labels, info);
}

}  // namespace hs
