// The writing half of data/formats/record_file.h.
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "data/formats/record_file.h"
#include "data/formats/record_format.h"
#include "data/formats/shards.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "engine/files/output_file.h"

namespace hs {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t default_block_bytes = 1 << 16;

template <class Number>
void append(Bytes& to, Number number) {
  to.resize(to.size() + sizeof(Number));
  put_little_endian(&to[to.size() - sizeof(Number)], number);
}

class RecordWriter : public SampleWriter {
 public:
  RecordWriter(const std::filesystem::path& prefix, const SampleInfo& info, const RecordWriteOptions& options)
      : SampleWriter(info),
        prefix_(prefix),
        shards_(options.shards),
        per_block_(options.samples_per_block),
        compress_(options.compress) {
    check(info.count >= 1 && info.classes >= 1 && info.classes <= max_classes, "{} samples of {} classes", info.count,
          info.classes);
    check(info.is_allowed(), "images of {}", info.text());
    check_shard_count(shards_, info.count);
    if (per_block_ == 0) per_block_ = std::max<int64_t>(1, default_block_bytes / info.image_bytes());
    start_shard();
  }

 private:
  void write_sample(const uint8_t* image, int32_t label) override {
    if (added() == range_.first + range_.count) {
      finish_shard();
      start_shard();
    }
    block_.insert(block_.end(), image, image + info().image_bytes());
    append(labels_, static_cast<uint16_t>(label));
    if (static_cast<int64_t>(block_.size()) == per_block_ * info().image_bytes()) write_block();
  }

  void keep_files() override {
    finish_shard();
    for (size_t i = 0; i < files_.size(); ++i) {
      headers_[i].set_crc = set_crc_;
      const RecordHeaderBytes bytes = encode_record_header(headers_[i]);
      files_[i].write_at(0, bytes.data(), bytes.size());
    }
    keep_all(files_);
  }

  void start_shard() {
    const int64_t shard = std::ssize(files_);
    range_ = shard_range(shard, shards_, info().count);
    files_.emplace_back(shard_path(prefix_, shard, shards_));
    const RecordHeaderBytes nothing{};  // the header is written last, when it is known
    files_.back().write(nothing.data(), nothing.size());
    blocks_.clear();
    labels_.clear();
  }

  void write_block() {
    const Bytes* stored = &block_;
    Bytes packed;
    if (compress_) {
      uLongf size = compressBound(block_.size());
      packed.resize(size);
      if (compress2(packed.data(), &size, block_.data(), block_.size(), Z_DEFAULT_COMPRESSION) != Z_OK) {
        fail(ExitCode::out_of_memory, "{}: no memory to compress {} bytes", prefix_.string(), block_.size());
      }
      packed.resize(size);
      stored = &packed;
    }
    append(blocks_, files_.back().position());
    append(blocks_, static_cast<uint32_t>(stored->size()));
    append(blocks_, crc32c(stored->data(), stored->size()));
    files_.back().write(stored->data(), stored->size());
    block_.clear();
  }

  void finish_shard() {
    if (!block_.empty()) write_block();
    RecordHeader header;
    header.samples = static_cast<uint64_t>(range_.count);
    header.set_samples = static_cast<uint64_t>(info().count);
    header.first_sample = static_cast<uint64_t>(range_.first);
    header.shard = static_cast<uint32_t>(headers_.size());
    header.shards = static_cast<uint32_t>(shards_);
    header.rows = static_cast<uint32_t>(info().rows);
    header.columns = static_cast<uint32_t>(info().columns);
    header.channels = static_cast<uint32_t>(info().channels);
    header.classes = static_cast<uint32_t>(info().classes);
    header.scale = info().scale;
    header.compression = compress_ ? RecordCompression::zlib : RecordCompression::none;
    header.samples_per_block = static_cast<uint32_t>(per_block_);
    header.blocks = blocks_.size() / record_block_entry_bytes;
    header.index_offset = files_.back().position();
    header.name = info().name.substr(0, record_max_name);
    Bytes index = std::move(blocks_);
    index.insert(index.end(), labels_.begin(), labels_.end());
    header.index_crc = crc32c(index.data(), index.size());
    set_crc_ = crc32c(index.data(), index.size(), set_crc_);
    files_.back().write(index.data(), index.size());
    header.file_bytes = files_.back().position();
    headers_.push_back(header);
  }

  const std::filesystem::path prefix_;
  const int64_t shards_;
  int64_t per_block_;
  const bool compress_;

  std::deque<OutputFile> files_;
  std::vector<RecordHeader> headers_;  // of the shards that are written
  ShardRange range_;                   // of the current shard
  uint32_t set_crc_ = 0;
  Bytes block_, blocks_, labels_;  // of the current shard: pixels not yet written, and its index
};

}  // namespace

std::unique_ptr<SampleWriter> write_records(const std::filesystem::path& prefix, const SampleInfo& info,
                                            const RecordWriteOptions& options) {
  return std::make_unique<RecordWriter>(prefix, info, options);
}

}  // namespace hs
