#include "data/formats/record_file.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "data/formats/record_format.h"
#include "data/formats/shards.h"
#include "data/io/mapped_file.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "engine/files/input_file.h"
#include "engine/files/output_file.h"

namespace hs {
namespace {

using Bytes = std::vector<uint8_t>;

struct BlockEntry {
  uint64_t offset;
  uint32_t stored_bytes;
  uint32_t crc;
};

// One file: its header and index are checked here, its blocks when they are read.
class Shard {
 public:
  Shard(const std::filesystem::path& path, uint64_t map_limit) : file_(path, map_limit) {
    read_header();
    read_index();
  }

  const std::string& name() const { return file_.name(); }
  const RecordHeader& header() const { return header_; }
  int32_t label(uint64_t sample) const { return labels_[sample]; }
  const Bytes& index() const { return index_; }
  void forget_index() { Bytes().swap(index_); }

  // Uncompressed: copies one image.
  void copy_image(uint64_t sample, uint8_t* to) const {
    const uint64_t block = sample / header_.samples_per_block;
    // Two threads may both check it; that is harmless.
    if (!verified_[block].load(std::memory_order_relaxed)) {
      read_block(block);
      verified_[block].store(true, std::memory_order_relaxed);
    }
    file_.copy(record_header_bytes + sample * header_.image_bytes(), header_.image_bytes(), to);
  }

  // Compressed: a whole block.
  Bytes decompress(uint64_t block) const {
    const Bytes stored = read_block(block);
    Bytes pixels(header_.samples_in_block(block) * header_.image_bytes());
    uLongf size = pixels.size();
    uLong used = stored.size();
    const int status = uncompress2(pixels.data(), &size, stored.data(), &used);
    if (status == Z_MEM_ERROR) fail(ExitCode::out_of_memory, "{}: no memory to decompress it", name());
    if (status != Z_OK || size != pixels.size() || used != stored.size()) {
      fail(ExitCode::bad_input, "{}: block {} of {} does not decompress to {} bytes; convert the set again", name(),
           block, header_.blocks, pixels.size());
    }
    return pixels;
  }

 private:
  void read_header() {
    if (file_.size() < record_header_bytes) {
      fail(ExitCode::bad_input, "{}: truncated header, need {} bytes, have {}; copy the file again", name(),
           record_header_bytes, file_.size());
    }
    RecordHeaderBytes bytes;
    file_.copy(0, bytes.size(), bytes.data());
    header_ = decode_record_header(bytes, name(), file_.size());
  }

  void read_index() {
    index_.resize(header_.index_bytes());
    file_.copy(header_.index_offset, index_.size(), index_.data());
    if (crc32c(index_.data(), index_.size()) != header_.index_crc) {
      fail(ExitCode::bad_input, "{}: the index at byte {} is damaged (its CRC32C is not 0x{:08x}); copy the file again",
           name(), header_.index_offset, header_.index_crc);
    }
    blocks_.reserve(header_.blocks);
    uint64_t offset = record_header_bytes;
    for (uint64_t block = 0; block < header_.blocks; ++block) {
      const uint8_t* at = index_.data() + block * record_block_entry_bytes;
      blocks_.push_back(
          {get_little_endian<uint64_t>(at), get_little_endian<uint32_t>(at + 8), get_little_endian<uint32_t>(at + 12)});
      check_block(block, offset);
      offset += blocks_.back().stored_bytes;
    }
    if (offset != header_.index_offset) {
      fail(ExitCode::bad_input, "{}: the blocks end at byte {}, expected {}; convert the set again", name(), offset,
           header_.index_offset);
    }
    labels_.reserve(header_.samples);
    const uint8_t* labels = index_.data() + header_.blocks * record_block_entry_bytes;
    for (uint64_t sample = 0; sample < header_.samples; ++sample) {
      labels_.push_back(get_little_endian<uint16_t>(labels + sample * record_label_bytes));
      if (labels_.back() >= header_.set.classes) {
        fail(ExitCode::bad_input, "{}: label {} of sample {}, expected 0 to {}", name(), labels_.back(),
             header_.first_sample + sample, header_.set.classes - 1);
      }
    }
    verified_ = std::make_unique<std::atomic<bool>[]>(header_.blocks);
  }

  void check_block(uint64_t block, uint64_t expected_offset) const {
    const BlockEntry& entry = blocks_[block];
    const uint64_t pixels = header_.samples_in_block(block) * header_.image_bytes();
    // Deflate cannot do better than 1032 to 1.
    const bool size_fits = header_.compression == RecordCompression::none
                               ? entry.stored_bytes == pixels
                               : pixels <= 1032 * uint64_t{entry.stored_bytes} + 1024;
    if (entry.offset == expected_offset && size_fits && entry.stored_bytes <= header_.index_offset - expected_offset) {
      return;
    }
    fail(ExitCode::bad_input,
         "{}: block {} of {} is said to be {} bytes from byte {}, for {} bytes of pixels from byte {}; convert the set "
         "again",
         name(), block, header_.blocks, entry.stored_bytes, entry.offset, pixels, expected_offset);
  }

  // The bytes as they are stored, checked.
  Bytes read_block(uint64_t block) const {
    const BlockEntry& entry = blocks_[block];
    Bytes stored(entry.stored_bytes);
    file_.copy(entry.offset, stored.size(), stored.data());
    const uint32_t crc = crc32c(stored.data(), stored.size());
    if (crc == entry.crc) return stored;
    fail(ExitCode::bad_input, "{}: block {} of {} is damaged: CRC32C 0x{:08x}, expected 0x{:08x}; copy the file again",
         name(), block, header_.blocks, crc, entry.crc);
  }

  MappedFile file_;
  RecordHeader header_;
  Bytes index_;
  std::vector<BlockEntry> blocks_;
  std::vector<uint16_t> labels_;
  std::unique_ptr<std::atomic<bool>[]> verified_;
};

// Throws unless both shards describe the same data set.
void check_same_set(const Shard& first, const Shard& other, uint64_t number, uint64_t first_sample) {
  const RecordHeader &a = first.header(), &b = other.header();
  const auto expect = [&](const char* what, auto found, auto expected) {
    if (found == expected) return;
    fail(ExitCode::bad_input, "{}: {} {}, but {} from {}; these are shards of two sets, convert them again",
         other.name(), what, found, expected, first.name());
  };
  expect("number of shards", b.shards, a.shards);
  expect("number of this shard", uint64_t{b.shard}, number);
  expect("samples of the set", b.set.count, a.set.count);
  expect("first sample", b.first_sample, first_sample);
  expect("rows", b.set.rows, a.set.rows);
  expect("columns", b.set.columns, a.set.columns);
  expect("channels", b.set.channels, a.set.channels);
  expect("classes", b.set.classes, a.set.classes);
  expect("mean", b.set.scale.mean, a.set.scale.mean);
  expect("deviation", b.set.scale.deviation, a.set.scale.deviation);
  expect("samples per block", b.samples_per_block, a.samples_per_block);
  expect("compression", static_cast<uint32_t>(b.compression), static_cast<uint32_t>(a.compression));
  expect("name", printable(b.set.name), printable(a.set.name));
  expect("names of classes", fmt::format("{}", fmt::join(b.set.class_names, ", ")),
         fmt::format("{}", fmt::join(a.set.class_names, ", ")));
  expect("sum of the set", b.set_crc, a.set_crc);
}

using Shards = std::vector<std::unique_ptr<Shard>>;

void check_set(const Shards& shards) {
  const RecordHeader& header = shards.front()->header();
  uint64_t samples = 0;
  uint32_t crc = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    check_same_set(*shards.front(), *shards[i], i, samples);
    samples += shards[i]->header().samples;
    crc = crc32c(shards[i]->index().data(), shards[i]->index().size(), crc);
    shards[i]->forget_index();
  }
  const std::string& name = shards.front()->name();
  if (header.shards != shards.size() || static_cast<int64_t>(samples) != header.set.count) {
    fail(ExitCode::bad_input, "{}: the set is said to be {} samples in {} shards, but there are {} in {}", name,
         header.set.count, header.shards, samples, shards.size());
  }
  if (crc != header.set_crc) {
    fail(ExitCode::bad_input,
         "{}: the shards do not belong together (CRC32C 0x{:08x} of the set, expected 0x{:08x}); convert the set again",
         name, crc, header.set_crc);
  }
}

SampleInfo info_of(const std::filesystem::path& path, const Shards& shards) {
  const RecordHeader& header = shards.front()->header();
  SampleInfo info = header.set;
  info.name = printable_text(info.name);
  info.description = fmt::format("record files {}, {} shards{}", printable(path), shards.size(),
                                 header.compression == RecordCompression::zlib ? ", compressed" : "");
  return info;
}

class RecordSource : public SampleSource {
 public:
  RecordSource(const std::filesystem::path& path, Shards shards, uint64_t cache_bytes)
      : SampleSource(info_of(path, shards)), shards_(std::move(shards)), cached_(places_in(cache_bytes)) {
    for (const auto& shard : shards_) starts_.push_back(shard->header().first_sample);
  }

 private:
  struct Place {
    size_t shard;
    uint64_t sample;  // in the shard
  };
  struct Block {
    uint64_t number;
    Bytes pixels;
  };

  uint64_t places_in(uint64_t cache_bytes) const {
    const RecordHeader& header = shards_.front()->header();
    if (header.compression == RecordCompression::none) return 1;
    uint64_t blocks = 0;
    for (const auto& shard : shards_) blocks += shard->header().blocks;
    return std::clamp<uint64_t>(cache_bytes / (header.samples_per_block * header.image_bytes()), 1, blocks);
  }

  Place locate(int64_t index) const {
    const auto sample = static_cast<uint64_t>(index);
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), sample);
    const auto shard = static_cast<size_t>(after - starts_.begin()) - 1;
    return {shard, sample - starts_[shard]};
  }

  void read_sample(int64_t index, uint8_t* image) const override {
    const Place place = locate(index);
    const Shard& shard = *shards_[place.shard];
    const RecordHeader& header = shard.header();
    if (header.compression == RecordCompression::none) return shard.copy_image(place.sample, image);

    const uint64_t block = place.sample / header.samples_per_block;
    const uint64_t number = block * shards_.size() + place.shard;
    std::shared_ptr<const Block>& cached = cached_[number % cached_.size()];
    std::unique_lock lock(mutex_);
    std::shared_ptr<const Block> found = cached;
    if (!found || found->number != number) {
      lock.unlock();  // other threads read, and decompress, meanwhile
      found = std::make_shared<const Block>(Block{number, shard.decompress(block)});
      lock.lock();
      cached = found;
    }
    lock.unlock();
    const uint64_t offset = place.sample % header.samples_per_block * header.image_bytes();
    std::copy_n(found->pixels.data() + offset, header.image_bytes(), image);
  }

  int32_t sample_label(int64_t index) const override {
    const Place place = locate(index);
    return shards_[place.shard]->label(place.sample);
  }

  const Shards shards_;
  std::vector<uint64_t> starts_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Block>> cached_;  // decompressed; a block's number determines its one place
};

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
    RecordHeader header{.set = info(), .samples = static_cast<uint64_t>(range_.count)};
    header.first_sample = static_cast<uint64_t>(range_.first);
    header.shard = static_cast<uint32_t>(headers_.size());
    header.shards = static_cast<uint32_t>(shards_);
    header.compression = compress_ ? RecordCompression::zlib : RecordCompression::none;
    header.samples_per_block = static_cast<uint32_t>(per_block_);
    header.blocks = blocks_.size() / record_block_entry_bytes;
    header.index_offset = files_.back().position();
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

std::unique_ptr<SampleSource> open_records(const std::filesystem::path& path, const RecordReadOptions& options) {
  const std::vector<std::filesystem::path> files = find_shards(path);
  // At least 1 each, because 0 has another meaning.
  const uint64_t limit = options.map_limit == 0 ? 0 : std::max<uint64_t>(options.map_limit / files.size(), 1);
  Shards shards;
  for (const std::filesystem::path& file : files) shards.push_back(std::make_unique<Shard>(file, limit));
  check_set(shards);
  return std::make_unique<RecordSource>(path, std::move(shards), options.cache_bytes);
}

std::unique_ptr<SampleWriter> write_records(const std::filesystem::path& prefix, const SampleInfo& info,
                                            const RecordWriteOptions& options) {
  return std::make_unique<RecordWriter>(prefix, info, options);
}

}  // namespace hs
