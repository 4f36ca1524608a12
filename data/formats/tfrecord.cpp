#include "data/formats/tfrecord.h"

#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <vector>

#include "data/formats/shards.h"
#include "data/io/mapped_file.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "engine/files/output_file.h"
#include "engine/files/protobuf.h"

namespace hs {
namespace {

using View = std::span<const uint8_t>;

constexpr size_t head_bytes = 12;                               // length and its CRC
constexpr uint64_t max_record_bytes = max_image_bytes + 65536;  // the rest: names and numbers
constexpr uint64_t bytes_list = 1, int64_list = 3;              // fields of a Feature

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(ExitCode::bad_input, "{}", fmt::format(format, std::forward<Args>(args)...));
}

View take(View& rest, uint64_t count) {
  if (count > rest.size()) refuse("is not a tf.train.Example: a field is cut");
  const View taken = rest.first(count);
  rest = rest.subspan(count);
  return taken;
}

uint64_t take_number(View& rest) {
  uint64_t number = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint64_t byte = take(rest, 1)[0], bits = byte & 0x7f;
    if (bits << shift >> shift != bits) break;
    number |= bits << shift;
    if (byte < 0x80) return number;
  }
  refuse("is not a tf.train.Example: a number has more than 64 bits");
}

// Protobuf's wire format (protobuf.dev/programming-guides/encoding): a field is a number with three bits of type, then
// a variable-length number, 8 bytes, a length and that many bytes, or 4 bytes.
struct Field {
  uint64_t key;
  int64_t number = 0;
  View bytes = {};

  bool has_number(uint64_t field) const { return key == field << 3; }
  bool has_bytes(uint64_t field) const { return key == (field << 3 | 2); }
};
Field take_field(View& rest) {
  Field field{take_number(rest)};
  const uint64_t type = field.key & 7;
  if (field.key < 8 || type == 3 || type == 4 || type > 5) {
    refuse("is not a tf.train.Example: a field has number {} and type {}", field.key >> 3, type);
  }
  if (type == 0) {
    field.number = static_cast<int64_t>(take_number(rest));
  } else {
    field.bytes = take(rest, type == 2 ? take_number(rest) : type == 1 ? 8 : 4);
  }
  return field;
}

// The one value of a Feature { BytesList = 1, FloatList = 2, Int64List = 3 }, each { repeated value = 1 }.
Field read_feature(View feature, uint64_t kind, std::string_view name) {
  Field value{0};
  int64_t count = 0;
  while (!feature.empty()) {
    const Field list = take_field(feature);
    for (View values = list.has_bytes(kind) ? list.bytes : View(); !values.empty();) {
      const Field one = take_field(values);
      if (kind == bytes_list ? one.has_bytes(1) : one.has_number(1)) {
        value = one;
        ++count;
      }
      for (View packed = kind == int64_list && one.has_bytes(1) ? one.bytes : View(); !packed.empty(); ++count) {
        value.number = static_cast<int64_t>(take_number(packed));
      }
    }
  }
  if (count == 1) return value;
  refuse("has {} values of {}, expected one; features are image (bytes), label, height, width, channels (int64)", count,
         name);
}

struct Example {
  View image;  // points into the record
  int64_t label;
  ImageShape shape;
};

Example parse(View record) {
  constexpr std::array<std::string_view, 5> names = {"image", "label", "height", "width", "channels"};
  std::array<View, names.size()> features;
  while (!record.empty()) {  // Example { Features features = 1 }
    const Field map = take_field(record);
    for (View entries = map.has_bytes(1) ? map.bytes : View(); !entries.empty();) {  // { map<string, Feature> = 1 }
      const Field entry = take_field(entries);
      View key, feature;  // { string key = 1, Feature value = 2 }
      for (View parts = entry.has_bytes(1) ? entry.bytes : View(); !parts.empty();) {
        const Field part = take_field(parts);
        if (part.has_bytes(1)) key = part.bytes;
        if (part.has_bytes(2)) feature = part.bytes;
      }
      const auto* name =
          std::ranges::find(names, std::string_view(reinterpret_cast<const char*>(key.data()), key.size()));
      if (name != names.end()) features[static_cast<size_t>(name - names.begin())] = feature;
    }
  }
  const auto number = [&](size_t i) { return read_feature(features[i], int64_list, names[i]).number; };
  const View image = read_feature(features[0], bytes_list, names[0]).bytes;
  const Example example{image, number(1), {number(2), number(3), number(4)}};
  if (!example.shape.is_allowed() || std::ssize(example.image) != example.shape.image_bytes()) {
    refuse("has an image of {} in {} bytes, expected raw pixels, at most {} x {} x {}", example.shape.text(),
           example.image.size(), max_image_side, max_image_side, max_image_channels);
  }
  if (example.label < 0 || example.label >= max_classes) {
    refuse("has the label {}, expected 0 to {}", example.label, max_classes - 1);
  }
  return example;
}

struct Place {  // of an image
  uint64_t offset;
  uint16_t file;
  uint16_t label;
};

class TfrecordSource : public SampleSource {
 public:
  using Files = std::vector<std::unique_ptr<MappedFile>>;
  TfrecordSource(SampleInfo info, Files files, std::vector<Place> images)
      : SampleSource(std::move(info)), files_(std::move(files)), images_(std::move(images)) {}

 private:
  void read_sample(int64_t index, uint8_t* image) const override {
    const Place& place = images_[static_cast<size_t>(index)];
    files_[place.file]->copy(place.offset, static_cast<size_t>(info().image_bytes()), image);
  }
  int32_t sample_label(int64_t index) const override { return images_[static_cast<size_t>(index)].label; }

  const Files files_;
  const std::vector<Place> images_;
};

// Reads and checks the record that starts at `offset`; returns where it ends. The first record of the data set
// determines the shape of all.
uint64_t scan_record(const MappedFile& file, uint16_t number, uint64_t offset, SampleInfo& info,
                     std::vector<Place>& images) {
  std::vector<uint8_t> bytes;
  const auto read = [&](uint64_t at, uint64_t size, const char* what) {  // and the CRC behind it
    if (file.size() - at < size + 4) refuse("is cut in its {}; copy the file again", what);
    bytes.resize(size + 4);
    file.copy(at, bytes.size(), bytes.data());
    const auto crc = get_little_endian<uint32_t>(&bytes[size]);
    if (masked_crc32c(bytes.data(), size) != crc) refuse("is damaged in its {}; copy the file again", what);
  };
  try {
    read(offset, 8, "length");
    const auto length = get_little_endian<uint64_t>(bytes.data());
    if (length > max_record_bytes) refuse("has {} bytes, expected at most {}", length, max_record_bytes);
    const uint64_t data = offset + head_bytes;
    read(data, length, "data");
    const Example example = parse({bytes.data(), length});
    if (images.empty()) static_cast<ImageShape&>(info) = example.shape;
    if (example.shape != info.shape()) {
      refuse("is {}, but the first is {}; expected one size", example.shape.text(), info.text());
    }
    info.classes = std::max(info.classes, static_cast<int>(example.label) + 1);
    images.push_back({data + static_cast<uint64_t>(example.image.data() - bytes.data()), number,
                      static_cast<uint16_t>(example.label)});
    return data + length + 4;
  } catch (const Error& error) {
    throw error.with_message(fmt::format("{}: the record at byte {} {}", file.name(), offset, error.what()));
  }
}

// An entry of map<string, Feature>. The lists of numbers are packed, as TensorFlow writes them.
std::string feature(std::string_view name, uint64_t kind, std::string_view value) {
  using protobuf::field;
  return field(1, field(1, name) + field(2, field(kind, field(1, value))));
}
std::string feature(std::string_view name, int64_t number) {
  return feature(name, int64_list, protobuf::varint(static_cast<uint64_t>(number)));
}

class TfrecordWriter : public SampleWriter {
 public:
  TfrecordWriter(const std::filesystem::path& prefix, const SampleInfo& info, int64_t shards) : SampleWriter(info) {
    check_shard_count(shards, info.count);
    for (int64_t shard = 0; shard < shards; ++shard) files_.emplace_back(shard_path(prefix, shard, shards));
  }

 private:
  void write_sample(const uint8_t* image, int32_t label) override {
    const int64_t shards = std::ssize(files_);
    if (shard_ + 1 < shards && added() == shard_range(shard_ + 1, shards, info().count).first) {
      files_[static_cast<size_t>(shard_++)].finish();
    }
    const std::string_view pixels(reinterpret_cast<const char*>(image), static_cast<size_t>(info().image_bytes()));
    // TensorFlow writes a map in the order of its keys.
    files_[static_cast<size_t>(shard_)].write(framed_tfrecord(protobuf::field(
        1, feature("channels", info().channels) + feature("height", info().rows) +
               feature("image", bytes_list, pixels) + feature("label", label) + feature("width", info().columns))));
  }
  void keep_files() override { keep_all(files_); }

  std::deque<OutputFile> files_;  // of the shards
  int64_t shard_ = 0;             // that is being written
};

}  // namespace

uint32_t masked_crc32c(const void* bytes, size_t size) {
  const uint32_t crc = crc32c(bytes, size);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::string framed_tfrecord(std::string_view record) {
  uint8_t head[head_bytes], tail[4];
  put_little_endian(head, uint64_t{record.size()});
  put_little_endian(head + 8, masked_crc32c(head, 8));
  put_little_endian(tail, masked_crc32c(record.data(), record.size()));
  std::string framed(reinterpret_cast<const char*>(head), sizeof(head));
  return framed.append(record).append(reinterpret_cast<const char*>(tail), sizeof(tail));
}

std::unique_ptr<SampleSource> open_tfrecords(const std::filesystem::path& path, const SetIdentity& set) {
  std::error_code ignored;
  const bool one_file = std::filesystem::exists(path, ignored);
  std::vector<std::filesystem::path> paths = {path};
  if (!one_file || path.filename().string().find("-of-") != std::string::npos) paths = find_shards(path);
  TfrecordSource::Files files;
  std::vector<Place> images;
  SampleInfo info;
  for (const std::filesystem::path& each : paths) {
    const MappedFile& file = *files.emplace_back(std::make_unique<MappedFile>(each));
    if (file.size() == 0) fail(ExitCode::bad_input, "{}: is empty, expected at least one record", file.name());
    const auto number = static_cast<uint16_t>(files.size() - 1);
    for (uint64_t at = 0; at < file.size();) at = scan_record(file, number, at, info, images);
  }
  info.name = set.name;
  info.scale = set.scale.value_or(default_pixel_scale);
  info.description = fmt::format("TFRecord files {}, {} shards", printable(path), paths.size());
  info.count = std::ssize(images);
  return std::make_unique<TfrecordSource>(std::move(info), std::move(files), std::move(images));
}

std::unique_ptr<SampleWriter> write_tfrecords(const std::filesystem::path& prefix, const SampleInfo& info,
                                              int64_t shards) {
  return std::make_unique<TfrecordWriter>(prefix, info, shards);
}

}  // namespace hs
