// The writing half of data/formats/tfrecord.h. Messages are built from the inside out, because each is preceded by its
// length.
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/little_endian.h"
#include "data/formats/shards.h"
#include "data/formats/tfrecord.h"
#include "data/io/output_file.h"
#include "engine/check.h"

namespace hs {
namespace {

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

// A field whose value is bytes: a string, or another message.
std::string field(uint64_t number, std::string_view bytes) {
  return varint(number << 3 | 2).append(varint(bytes.size())).append(bytes);
}

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
      : prefix_(prefix), info_(info), shards_(shards) {
    if (shards < 1 || shards > std::min(max_shards, info.count)) {
      fail(ExitCode::usage, "{} shards of {} samples: expected 1 to {}", shards, info.count,
           std::min(max_shards, info.count));
    }
    shape_ = feature("channels", info.channels) + feature("height", info.rows);
    start_shard();
  }

  void add(const uint8_t* image, int32_t label) override {
    const ShardRange range = shard_range(shard_, shards_, info_.count);
    if (added_ == range.first + range.count) {
      files_.back().finish();
      ++shard_;
      start_shard();
    }
    const std::string_view pixels(reinterpret_cast<const char*>(image), static_cast<size_t>(info_.image_bytes()));
    // TensorFlow writes a map in the order of its keys.
    write_record(field(
        1, shape_ + feature("image", bytes_list, pixels) + feature("label", label) + feature("width", info_.columns)));
    ++added_;
  }

  void finish() override {
    check(added_ == info_.count, "{}: {} of {} samples were added", prefix_.string(), added_, info_.count);
    keep_all(files_);
  }

 private:
  void start_shard() { files_.emplace_back(shard_path(prefix_, shard_, shards_)); }

  void write_record(const std::string& record) {
    uint8_t head[12], tail[4];
    put_little_endian(head, uint64_t{record.size()});
    put_little_endian(head + 8, masked_crc32c(head, 8));
    put_little_endian(tail, masked_crc32c(record.data(), record.size()));
    OutputFile& file = files_.back();
    file.write(head, sizeof(head));
    file.write(record.data(), record.size());
    file.write(tail, sizeof(tail));
  }

  const std::filesystem::path prefix_;
  const SampleInfo info_;
  const int64_t shards_;
  std::string shape_;
  std::deque<OutputFile> files_;
  int64_t shard_ = 0, added_ = 0;
};

}  // namespace

std::unique_ptr<SampleWriter> write_tfrecords(const std::filesystem::path& prefix, const SampleInfo& info,
                                              int64_t shards) {
  return std::make_unique<TfrecordWriter>(prefix, info, shards);
}

}  // namespace hs
