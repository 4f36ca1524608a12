// The writing half of data/formats/record_file.h.
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "data/formats/crc32c.h"
#include "data/formats/little_endian.h"
#include "data/formats/record_file.h"
#include "data/formats/record_format.h"
#include "data/formats/shards.h"
#include "data/io/output_file.h"
#include "engine/check.h"

namespace hs {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t usual_block_bytes = 1 << 16;

template <class Number>
void append(Bytes& to, Number number) {
  to.resize(to.size() + sizeof(Number));
  put_little_endian(&to[to.size() - sizeof(Number)], number);
}

class RecordWriter : public SampleWriter {
 public:
  RecordWriter(const std::filesystem::path& prefix, const SampleInfo& info, const RecordWriteOptions& options)
      : prefix_(prefix), info_(info) {
    check(info.count >= 1 && info.classes >= 1 && info.classes <= max_classes, "{} samples of {} classes", info.count,
          info.classes);
    check(info.rows >= 1 && info.rows <= max_image_side && info.columns >= 1 && info.columns <= max_image_side &&
              info.channels >= 1 && info.channels <= max_image_channels,
          "images of {} x {} x {}", info.rows, info.columns, info.channels);
    if (options.shards < 1 || options.shards > std::min(max_shards, info.count)) {
      fail(ExitCode::usage, "{} shards of {} samples: expected 1 to {}", options.shards, info.count,
           std::min(max_shards, info.count));
    }
    shards_ = options.shards;
    compress_ = options.compress;
    per_block_ = options.samples_per_block;
    if (per_block_ == 0) per_block_ = std::max<int64_t>(1, usual_block_bytes / info.image_bytes());
    start_shard();
  }

  void add(const uint8_t* image, int32_t label) override {
    check(!files_.empty() && added_ < info_.count, "{}: more than the {} samples of the set", prefix_.string(),
          info_.count);
    check(label >= 0 && label < info_.classes, "label {}, expected 0 to {}", label, info_.classes - 1);
    const ShardRange range = shard_range(shard_, shards_, info_.count);
    if (added_ == range.first + range.count) {
      finish_shard();
      ++shard_;
      start_shard();
    }
    block_.insert(block_.end(), image, image + info_.image_bytes());
    append(labels_, static_cast<uint16_t>(label));
    ++added_;
    if (static_cast<int64_t>(block_.size()) == per_block_ * info_.image_bytes()) write_block();
  }

  void finish() override {
    check(added_ == info_.count, "{}: {} of {} samples were added", prefix_.string(), added_, info_.count);
    finish_shard();
    for (size_t i = 0; i < files_.size(); ++i) {
      headers_[i].set_crc = set_crc_;
      const RecordHeaderBytes bytes = encode_record_header(headers_[i]);
      files_[i].write_at(0, bytes.data(), bytes.size());
    }
    keep_all(files_);
  }

 private:
  void start_shard() {
    files_.emplace_back(shard_path(prefix_, shard_, shards_));
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
    const ShardRange range = shard_range(shard_, shards_, info_.count);
    RecordHeader header;
    header.samples = static_cast<uint64_t>(range.count);
    header.set_samples = static_cast<uint64_t>(info_.count);
    header.first_sample = static_cast<uint64_t>(range.first);
    header.shard = static_cast<uint32_t>(shard_);
    header.shards = static_cast<uint32_t>(shards_);
    header.rows = static_cast<uint32_t>(info_.rows);
    header.columns = static_cast<uint32_t>(info_.columns);
    header.channels = static_cast<uint32_t>(info_.channels);
    header.classes = static_cast<uint32_t>(info_.classes);
    header.scale = info_.scale;
    header.compression = compress_ ? RecordCompression::zlib : RecordCompression::none;
    header.samples_per_block = static_cast<uint32_t>(per_block_);
    header.blocks = blocks_.size() / record_block_entry_bytes;
    header.index_offset = files_.back().position();
    header.name = info_.name.substr(0, record_max_name);
    Bytes index = std::move(blocks_);
    index.insert(index.end(), labels_.begin(), labels_.end());
    header.index_crc = crc32c(index.data(), index.size());
    set_crc_ = crc32c(index.data(), index.size(), set_crc_);
    files_.back().write(index.data(), index.size());
    header.file_bytes = files_.back().position();
    headers_.push_back(header);
  }

  const std::filesystem::path prefix_;
  const SampleInfo info_;
  int64_t shards_ = 1, per_block_ = 1;
  bool compress_ = false;

  std::deque<OutputFile> files_;
  std::vector<RecordHeader> headers_;  // of the shards that are written
  int64_t shard_ = 0, added_ = 0;
  uint32_t set_crc_ = 0;
  Bytes block_, blocks_, labels_;  // of the current shard: pixels not yet written, and its index
};

}  // namespace

std::unique_ptr<SampleWriter> write_records(const std::filesystem::path& prefix, const SampleInfo& info,
                                            const RecordWriteOptions& options) {
  return std::make_unique<RecordWriter>(prefix, info, options);
}

}  // namespace hs
