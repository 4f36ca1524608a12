#include "data/formats/idx.h"

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>

#include "engine/check.h"
#include "engine/files/endian.h"
#include "engine/files/input_file.h"
#include "engine/files/output_file.h"

namespace hs {
namespace {

struct Kind {
  const char* contents;
  uint32_t magic;
  size_t header_bytes;
};
constexpr Kind images_kind{"images", 0x00000803, 16};
constexpr Kind labels_kind{"labels", 0x00000801, 8};

// The bytes of a file after decompression, front to back.
class Content {
 public:
  explicit Content(const std::filesystem::path& path) : file_(path) {
    if (stored_bytes() > idx_max_bytes) {
      fail(ExitCode::bad_input,
           "{}: {} bytes, above the limit of {}; is this an IDX file? (idx_max_bytes in data/formats/idx.h)", name(),
           stored_bytes(), idx_max_bytes);
    }
    const int descriptor = ::fcntl(file_.descriptor(), F_DUPFD_CLOEXEC, 0);  // gzclose() closes it
    if (descriptor < 0) fail(ExitCode::io, "{}: cannot be opened: {}", name(), std::strerror(errno));
    stream_.reset(gzdopen(descriptor, "rb"));
    if (!stream_) fail(ExitCode::out_of_memory, "{}: no memory to decompress it", name());
  }

  const std::string& name() const { return file_.name(); }
  bool compressed() const { return gzdirect(stream_.get()) == 0; }
  uint64_t stored_bytes() const { return file_.size(); }

  // Returns fewer than `count` bytes only at the end. gzip data ends only when the checksum of each member is right.
  size_t read(uint8_t* to, size_t count) {
    constexpr size_t most = 1 << 13;  // zlib then always fills its own buffer: what is wrong in it is reported as early
    size_t done = 0;
    while (done < count) {
      const int got = gzread(stream_.get(), to + done, static_cast<unsigned>(std::min(count - done, most)));
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    if (done < count) check_stream();
    return done;
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  void check_stream() const {
    int status = Z_OK;
    const char* text = gzerror(stream_.get(), &status);
    if (status == Z_OK) return;
    if (status == Z_ERRNO) fail(ExitCode::io, "{}: cannot be read: {}", name(), std::strerror(errno));
    if (status == Z_MEM_ERROR) fail(ExitCode::out_of_memory, "{}: no memory to decompress it", name());
    if (status == Z_BUF_ERROR) {
      fail(ExitCode::bad_input, "{}: gzip data ends too early, after {} bytes; download the file again", name(),
           stored_bytes());
    }
    fail(ExitCode::bad_input, "{}: gzip data is damaged ({}); download the file again", name(),
         std::strchr(text, ' ') + 1);  // after the name of the file
  }

  InputFile file_;
  std::unique_ptr<gzFile_s, Close> stream_;
};

struct Header {
  uint64_t count = 0;
  uint64_t rows = 1;
  uint64_t columns = 1;
  uint64_t element_bytes = 1;
  uint64_t total_bytes = 0;  // header and samples
  std::string equation;      // how total_bytes is computed
};

void check_magic(const std::string& name, uint32_t magic, const Kind& kind) {
  if (magic == kind.magic) return;
  for (const Kind& other : {images_kind, labels_kind}) {
    if (magic != other.magic) continue;
    fail(ExitCode::bad_input, "{}: holds {} (magic 0x{:08x}), expected {} (0x{:08x}); are the two files swapped?", name,
         other.contents, magic, kind.contents, kind.magic);
  }
  const uint32_t element_type = magic >> 8;
  if (element_type >= 0x09 && element_type <= 0x0e) {
    fail(ExitCode::bad_input, "{}: element type 0x{:02x} (magic 0x{:08x}), expected 0x08, unsigned bytes (0x{:08x})",
         name, element_type, magic, kind.magic);
  }
  fail(ExitCode::bad_input, "{}: magic 0x{:08x}, expected 0x{:08x}; this is not an IDX file of {}", name, magic,
       kind.magic, kind.contents);
}

[[noreturn]] void fail_size(const std::string& name, const Header& header, uint64_t found) {
  const bool missing = found < header.total_bytes;
  fail(ExitCode::bad_input,
       "{}: the header says {} = {} bytes, but there are {} ({} bytes {}); download the file again", name,
       header.equation, header.total_bytes, found, missing ? header.total_bytes - found : found - header.total_bytes,
       missing ? "missing" : "too many");
}

constexpr uint32_t short_labels_magic = 0x00000b01;
constexpr uint32_t int_labels_magic = 0x00000c01;

// Leaves `content` at the first sample. The sizes that it returns are safe to allocate.
Header read_header(Content& content, const Kind& kind) {
  const std::string& name = content.name();
  const size_t header_bytes = kind.header_bytes;
  const bool is_images = kind.magic == images_kind.magic;
  uint8_t bytes[images_kind.header_bytes];
  const size_t have = content.read(bytes, header_bytes);
  if (have < header_bytes) {
    fail(ExitCode::bad_input, "{}: truncated header, need {} bytes, have {}; download the file again", name,
         header_bytes, have);
  }
  Header header;
  const uint32_t magic = get_big_endian(bytes);
  if (!is_images && (magic == short_labels_magic || magic == int_labels_magic)) {
    header.element_bytes = magic == short_labels_magic ? 2 : 4;
  } else {
    check_magic(name, magic, kind);
  }
  header.count = get_big_endian(bytes + 4);
  header.equation = fmt::format("{} + {}", header_bytes, header.count);
  if (header.element_bytes > 1) header.equation += fmt::format(" x {}", header.element_bytes);
  if (is_images) {
    header.rows = get_big_endian(bytes + 8);
    header.columns = get_big_endian(bytes + 12);
    header.equation += fmt::format(" x {} x {}", header.rows, header.columns);
  }
  if (header.count == 0 || header.rows == 0 || header.columns == 0) {
    fail(ExitCode::bad_input, "{}: a dimension is 0 in {}, expected at least one sample of at least one element", name,
         header.equation);
  }
  // Three 32-bit numbers: the first product fits into 64 bits, and after this test so does the second.
  if (header.rows * header.columns > idx_max_pixels) {
    fail(ExitCode::bad_input, "{}: images of {} x {} pixels, expected at most {} pixels; the header is damaged", name,
         header.rows, header.columns, idx_max_pixels);
  }
  header.total_bytes = header_bytes + header.count * header.rows * header.columns * header.element_bytes;
  if (!content.compressed() && header.total_bytes != content.stored_bytes()) {
    fail_size(name, header, content.stored_bytes());
  }
  // Deflate cannot do better than 1032 to 1, so a larger claim is a lie, detected without decompressing.
  if (content.compressed() &&
      (header.total_bytes > idx_max_bytes || header.total_bytes > 1032 * content.stored_bytes() + 1024)) {
    fail(ExitCode::bad_input,
         "{}: the header says {} = {} bytes, more than {} bytes of gzip can hold or the limit of {}", name,
         header.equation, header.total_bytes, content.stored_bytes(), idx_max_bytes);
  }
  return header;
}

// Returns the first `keep` bytes of the samples; the others are read, checked and dropped.
std::vector<uint8_t> read_samples(Content& content, const Kind& kind, const Header& header, uint64_t keep) {
  std::vector<uint8_t> samples(keep);
  uint64_t position = kind.header_bytes + content.read(samples.data(), keep);
  std::array<uint8_t, 1 << 14> dropped;
  while (position < header.total_bytes) {
    const size_t got = content.read(dropped.data(), std::min<uint64_t>(dropped.size(), header.total_bytes - position));
    if (got == 0) fail_size(content.name(), header, position);
    position += got;
  }
  if (content.read(dropped.data(), 1) != 0) {
    fail(ExitCode::bad_input, "{}: the header says {} = {} bytes, but there are more; download the file again",
         content.name(), header.equation, header.total_bytes);
  }
  return samples;
}

class IdxWriter : public SampleWriter {
 public:
  IdxWriter(const std::filesystem::path& images, const std::filesystem::path& labels, const SampleInfo& info)
      : SampleWriter(info), wide_(info.classes > 256) {
    for (const auto& path : {images, labels}) files_.emplace_back(path);
    const auto count = static_cast<uint32_t>(info.count);
    check(info.count == count, "{} samples do not fit into an IDX file", info.count);
    put(files_[0], {images_kind.magic, count, static_cast<uint32_t>(info.rows), static_cast<uint32_t>(info.columns)});
    put(files_[1], {wide_ ? short_labels_magic : labels_kind.magic, count});
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

IdxImages read_idx_images(const std::filesystem::path& path, int64_t limit) {
  check(limit >= 0, "read_idx_images: limit is {}", limit);
  Content content(path);
  const Header header = read_header(content, images_kind);
  IdxImages images;
  images.total = static_cast<int64_t>(header.count);
  images.count = limit == 0 ? images.total : std::min(limit, images.total);
  images.rows = static_cast<int64_t>(header.rows);
  images.columns = static_cast<int64_t>(header.columns);
  const uint64_t keep = static_cast<uint64_t>(images.count) * header.rows * header.columns;
  images.pixels = read_samples(content, images_kind, header, keep);
  return images;
}

std::vector<int32_t> read_idx_labels(const std::filesystem::path& path, int classes) {
  check(classes >= 1, "read_idx_labels: classes is {}", classes);
  Content content(path);
  const Header header = read_header(content, labels_kind);
  const std::vector<uint8_t> samples = read_samples(content, labels_kind, header, header.count * header.element_bytes);
  std::vector<int32_t> labels;
  labels.reserve(header.count);
  for (const uint8_t* at = samples.data(); at != samples.data() + samples.size(); at += header.element_bytes) {
    const int32_t label = header.element_bytes == 1   ? *at
                          : header.element_bytes == 2 ? static_cast<int16_t>(at[0] << 8 | at[1])
                                                      : static_cast<int32_t>(get_big_endian(at));
    if (label < 0 || label >= classes) {
      fail(ExitCode::bad_input, "{}: label {} of sample {}, expected 0 to {}", content.name(), label, labels.size(),
           classes - 1);
    }
    labels.push_back(label);
  }
  return labels;
}

std::unique_ptr<SampleWriter> write_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                                        const SampleInfo& info) {
  if (info.channels != 1) {
    fail(ExitCode::usage, "idx holds images of 1 channel, but {} has {}; choose another format", info.name,
         info.channels);
  }
  return std::make_unique<IdxWriter>(images, labels, info);
}

}  // namespace hs
