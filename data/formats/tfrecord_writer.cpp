// The writing half of data/formats/tfrecord.h.
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/shards.h"
#include "data/formats/tfrecord.h"
#include "engine/check.h"
#include "engine/files/endian.h"
#include "engine/files/output_file.h"
#include "engine/files/protobuf.h"

namespace hs {
namespace {

using namespace protobuf;

constexpr uint64_t bytes_list = 1, int64_list = 3;

// An entry of map<string, Feature>. The lists of numbers are packed, as TensorFlow writes them.
std::string feature(std::string_view name, uint64_t kind, std::string_view value) {
  return field(1, field(1, name) + field(2, field(kind, field(1, value))));
}
std::string feature(std::string_view name, int64_t number) {
  return feature(name, int64_list, varint(static_cast<uint64_t>(number)));
}

class TfrecordWriter : public SampleWriter {
 public:
  TfrecordWriter(const std::filesystem::path& prefix, const SampleInfo& info, int64_t shards)
      : SampleWriter(info), prefix_(prefix), shards_(shards) {
    check_shard_count(shards, info.count);
    shape_ = feature("channels", info.channels) + feature("height", info.rows);
    files_.emplace_back(shard_path(prefix, 0, shards));
  }

 private:
  void write_sample(const uint8_t* image, int32_t label) override {
    const int64_t next = std::ssize(files_);
    if (next < shards_ && added() == shard_range(next, shards_, info().count).first) {
      files_.back().finish();
      files_.emplace_back(shard_path(prefix_, next, shards_));
    }
    const std::string_view pixels(reinterpret_cast<const char*>(image), static_cast<size_t>(info().image_bytes()));
    // TensorFlow writes a map in the order of its keys.
    files_.back().write(framed_tfrecord(field(1, shape_ + feature("image", bytes_list, pixels) +
                                                     feature("label", label) + feature("width", info().columns))));
  }

  void keep_files() override { keep_all(files_); }

  const std::filesystem::path prefix_;
  const int64_t shards_;
  std::string shape_;
  std::deque<OutputFile> files_;
};

}  // namespace

std::string framed_tfrecord(std::string_view record) {
  uint8_t head[12], tail[4];
  put_little_endian(head, uint64_t{record.size()});
  put_little_endian(head + 8, masked_crc32c(head, 8));
  put_little_endian(tail, masked_crc32c(record.data(), record.size()));
  std::string framed(reinterpret_cast<const char*>(head), sizeof(head));
  return framed.append(record).append(reinterpret_cast<const char*>(tail), sizeof(tail));
}

std::unique_ptr<SampleWriter> write_tfrecords(const std::filesystem::path& prefix, const SampleInfo& info,
                                              int64_t shards) {
  return std::make_unique<TfrecordWriter>(prefix, info, shards);
}

}  // namespace hs
