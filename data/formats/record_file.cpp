#include "data/formats/record_file.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "data/formats/record_format.h"
#include "data/formats/shards.h"
#include "data/io/mapped_file.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "engine/files/input_file.h"

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
      if (labels_.back() >= header_.classes) {
        fail(ExitCode::bad_input, "{}: label {} of sample {}, expected 0 to {}", name(), labels_.back(),
             header_.first_sample + sample, header_.classes - 1);
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

// Decompressed blocks, direct-mapped: a block's number determines its one place.
class BlockCache {
 public:
  using Block = std::shared_ptr<const Bytes>;
  explicit BlockCache(uint64_t places) : places_(places) {}

  Block find(uint64_t number) {
    const std::scoped_lock lock(mutex_);
    const Place& place = places_[number % places_.size()];
    return place.number == number ? place.block : nullptr;
  }
  void put(uint64_t number, Block block) {
    const std::scoped_lock lock(mutex_);
    places_[number % places_.size()] = {number, std::move(block)};
  }

 private:
  struct Place {
    uint64_t number = UINT64_MAX;
    Block block;
  };
  std::mutex mutex_;
  std::vector<Place> places_;
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
  expect("samples of the set", b.set_samples, a.set_samples);
  expect("first sample", b.first_sample, first_sample);
  expect("rows", b.rows, a.rows);
  expect("columns", b.columns, a.columns);
  expect("channels", b.channels, a.channels);
  expect("classes", b.classes, a.classes);
  expect("mean", b.scale.mean, a.scale.mean);
  expect("deviation", b.scale.deviation, a.scale.deviation);
  expect("samples per block", b.samples_per_block, a.samples_per_block);
  expect("compression", static_cast<uint32_t>(b.compression), static_cast<uint32_t>(a.compression));
  expect("name", printable(b.name), printable(a.name));
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
  if (header.shards != shards.size() || samples != header.set_samples) {
    fail(ExitCode::bad_input, "{}: the set is said to be {} samples in {} shards, but there are {} in {}", name,
         header.set_samples, header.shards, samples, shards.size());
  }
  if (crc != header.set_crc) {
    fail(ExitCode::bad_input,
         "{}: the shards do not belong together (CRC32C 0x{:08x} of the set, expected 0x{:08x}); convert the set again",
         name, crc, header.set_crc);
  }
}

SampleInfo info_of(const std::filesystem::path& path, const Shards& shards) {
  const RecordHeader& header = shards.front()->header();
  std::string description = fmt::format("record files {}, {} shards{}", printable(path), shards.size(),
                                        header.compression == RecordCompression::zlib ? ", compressed" : "");
  SampleInfo info{{header.rows, header.columns, header.channels}, printable_text(header.name), std::move(description)};
  info.count = static_cast<int64_t>(header.set_samples);
  info.classes = static_cast<int>(header.classes);
  info.scale = header.scale;
  return info;
}

class RecordSource : public SampleSource {
 public:
  RecordSource(const std::filesystem::path& path, Shards shards, uint64_t cache_bytes)
      : SampleSource(info_of(path, shards)), shards_(std::move(shards)), cache_(places_in(cache_bytes)) {
    for (const auto& shard : shards_) starts_.push_back(shard->header().first_sample);
  }

 private:
  struct Place {
    size_t shard;
    uint64_t sample;  // in the shard
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
    BlockCache::Block pixels = cache_.find(number);
    if (!pixels) {
      pixels = std::make_shared<const Bytes>(shard.decompress(block));
      cache_.put(number, pixels);
    }
    const uint64_t offset = place.sample % header.samples_per_block * header.image_bytes();
    std::copy_n(pixels->data() + offset, header.image_bytes(), image);
  }

  int32_t sample_label(int64_t index) const override {
    const Place place = locate(index);
    return shards_[place.shard]->label(place.sample);
  }

  const Shards shards_;
  std::vector<uint64_t> starts_;
  mutable BlockCache cache_;
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

}  // namespace hs
