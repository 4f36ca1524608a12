#include "data/formats/tfrecord.h"

#include <algorithm>
#include <vector>

#include "data/formats/shards.h"
#include "data/io/mapped_file.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "engine/files/input_file.h"

namespace hs {
namespace {

using Bytes = std::vector<uint8_t>;
using View = std::span<const uint8_t>;

constexpr size_t head_bytes = 12;                               // length and its CRC
constexpr size_t frame_bytes = head_bytes + 4;                  // and the CRC of the bytes
constexpr uint64_t max_record_bytes = max_image_bytes + 65536;  // the rest: names and numbers

// Protobuf's wire format (protobuf.dev/programming-guides/encoding): a field is a number with three bits of type, then
// a variable-length number, 8 bytes, a length and that many bytes, or 4 bytes.
class Message {
 public:
  Message(View bytes, const std::string& name) : rest_(bytes), name_(name) {}

  struct Field {
    uint64_t number = 0;
    int type = 0;
    uint64_t value = 0;  // type 0
    View bytes;          // type 2
  };
  static constexpr int varint_type = 0, bytes_type = 2;

  bool ended() const { return rest_.empty(); }

  Field next() {
    Field field;
    const uint64_t key = varint();
    field.number = key >> 3;
    field.type = static_cast<int>(key & 7);
    if (field.type == varint_type) {
      field.value = varint();
    } else if (field.type == bytes_type) {
      field.bytes = take(varint());
    } else if (field.type == 1) {
      take(8);
    } else if (field.type == 5) {
      take(4);
    } else {
      fail_damaged(fmt::format("a field has type {}", field.type));
    }
    if (field.number == 0) fail_damaged("a field has number 0");
    return field;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint8_t byte = take(1)[0];
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail_damaged("a number has more than 64 bits");
  }

 private:
  View take(uint64_t count) {
    if (count > rest_.size()) fail_damaged(fmt::format("{} bytes are announced, {} are left", count, rest_.size()));
    const View taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  [[noreturn]] void fail_damaged(const std::string& what) const {
    fail(ExitCode::bad_input, "{}: a record is not a tf.train.Example: {}", name_, what);
  }

  View rest_;
  const std::string& name_;
};

constexpr uint64_t bytes_list = 1, int64_list = 3;  // the kinds of Feature; 2 is float_list

// The one value of a Feature. Feature { BytesList = 1, FloatList = 2, Int64List = 3 }, each { repeated value = 1 }.
struct Value {
  uint64_t kind = 0;
  int64_t count = 0;
  View bytes;
  int64_t number = 0;
};

Value read_feature(View feature, const std::string& name) {
  Value value;
  for (Message lists(feature, name); !lists.ended();) {
    const Message::Field list = lists.next();
    if (list.type != Message::bytes_type || list.number > int64_list) continue;
    if (list.number != value.kind) value = {list.number, 0, {}, 0};
    for (Message values(list.bytes, name); !values.ended();) {
      const Message::Field one = values.next();
      if (one.number != 1) continue;
      if (value.kind == bytes_list && one.type == Message::bytes_type) {
        value.bytes = one.bytes;
        ++value.count;
      } else if (value.kind == int64_list && one.type == Message::varint_type) {
        value.number = static_cast<int64_t>(one.value);
        ++value.count;
      } else if (value.kind == int64_list && one.type == Message::bytes_type) {  // packed
        for (Message packed(one.bytes, name); !packed.ended(); ++value.count) {
          value.number = static_cast<int64_t>(packed.varint());
        }
      }
    }
  }
  return value;
}

struct Wanted {
  std::string_view name;
  uint64_t kind;
  bool found = false;
};

}  // namespace

TfrecordExample parse_tfrecord_example(std::span<const uint8_t> record, const std::string& name) {
  TfrecordExample example;
  Wanted wanted[] = {{"image", bytes_list},
                     {"label", int64_list},
                     {"height", int64_list},
                     {"width", int64_list},
                     {"channels", int64_list}};
  int64_t* const numbers[] = {nullptr, &example.label, &example.shape.rows, &example.shape.columns,
                              &example.shape.channels};

  const auto read_entry = [&](View entry) {  // { string key = 1, Feature value = 2 }
    View key, feature;
    for (Message parts(entry, name); !parts.ended();) {
      const Message::Field part = parts.next();
      if (part.type != Message::bytes_type) continue;
      if (part.number == 1) key = part.bytes;
      if (part.number == 2) feature = part.bytes;
    }
    const std::string_view text(reinterpret_cast<const char*>(key.data()), key.size());
    for (size_t i = 0; i < std::size(wanted); ++i) {
      if (text != wanted[i].name) continue;
      const Value value = read_feature(feature, name);
      if (value.kind != wanted[i].kind || value.count != 1) {
        fail(ExitCode::bad_input, "{}: feature {} holds {} values of kind {}, expected one of kind {} ({})", name,
             wanted[i].name, value.count, value.kind, wanted[i].kind, wanted[i].kind == bytes_list ? "bytes" : "int64");
      }
      wanted[i].found = true;
      if (numbers[i] == nullptr) {
        example.image = value.bytes;
      } else {
        *numbers[i] = value.number;
      }
    }
  };
  for (Message outer(record, name); !outer.ended();) {  // Example { Features features = 1 }
    const Message::Field features = outer.next();
    if (features.number != 1 || features.type != Message::bytes_type) continue;
    for (Message map(features.bytes, name); !map.ended();) {  // Features { map<string, Feature> feature = 1 }
      const Message::Field entry = map.next();
      if (entry.number == 1 && entry.type == Message::bytes_type) read_entry(entry.bytes);
    }
  }

  for (const Wanted& feature : wanted) {
    if (feature.found) continue;
    fail(ExitCode::bad_input, "{}: a record has no feature {}; expected image (bytes), label, height, width, channels",
         name, feature.name);
  }
  if (!example.shape.is_allowed()) {
    fail(ExitCode::bad_input, "{}: an image of {}, expected at most {} x {} x {}", name, example.shape.text(),
         max_image_side, max_image_side, max_image_channels);
  }
  if (std::ssize(example.image) != example.shape.image_bytes()) {
    fail(ExitCode::bad_input, "{}: an image of {} in {} bytes, expected {} (encoded images are not read)", name,
         example.shape.text(), example.image.size(), example.shape.image_bytes());
  }
  if (example.label < 0 || example.label >= max_classes) {
    fail(ExitCode::bad_input, "{}: label {}, expected 0 to {}", name, example.label, max_classes - 1);
  }
  return example;
}

uint32_t masked_crc32c(const void* bytes, size_t size) {
  const uint32_t crc = crc32c(bytes, size);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

namespace {

// Reads the record that starts at `offset` into `frame`, and checks it; returns its bytes.
View read_record(const MappedFile& file, uint64_t offset, Bytes& frame) {
  const uint64_t left = file.size() - offset;
  const auto fail_cut = [&](uint64_t needed) {
    fail(ExitCode::bad_input, "{}: the record at byte {} needs {} bytes, but the file has {} more; copy it again",
         file.name(), offset, needed, left);
  };
  const auto check_crc = [&](const char* what, const uint8_t* at, size_t size) {
    const auto expected = get_little_endian<uint32_t>(at + size);
    if (masked_crc32c(at, size) == expected) return;
    fail(ExitCode::bad_input, "{}: the {} of the record at byte {} is damaged (its masked CRC32C is not 0x{:08x})",
         file.name(), what, offset, expected);
  };
  if (left < head_bytes) fail_cut(frame_bytes);
  frame.resize(std::max(frame.size(), head_bytes));
  file.copy(offset, head_bytes, frame.data());
  check_crc("length", frame.data(), 8);
  const auto length = get_little_endian<uint64_t>(frame.data());
  if (length > max_record_bytes) {
    fail(ExitCode::bad_input, "{}: the record at byte {} has {} bytes, expected at most {}", file.name(), offset,
         length, max_record_bytes);
  }
  if (left - head_bytes < length + 4) fail_cut(frame_bytes + length);
  frame.resize(std::max<size_t>(frame.size(), length + 4));
  file.copy(offset + head_bytes, length + 4, frame.data());
  check_crc("data", frame.data(), length);
  return {frame.data(), length};
}

struct Record {
  uint64_t offset;
  uint16_t file;
  uint16_t label;
};

class TfrecordSource : public SampleSource {
 public:
  using Files = std::vector<std::unique_ptr<MappedFile>>;
  TfrecordSource(SampleInfo info, Files files, std::vector<Record> records)
      : SampleSource(std::move(info)), files_(std::move(files)), records_(std::move(records)) {}

 private:
  void read_sample(int64_t index, uint8_t* image) const override {
    const Record& record = records_[static_cast<size_t>(index)];
    const MappedFile& file = *files_[record.file];
    thread_local Bytes frame;
    const TfrecordExample example = parse_tfrecord_example(read_record(file, record.offset, frame), file.name());
    if (example.shape != info().shape()) {
      fail(ExitCode::bad_input, "{}: was written to since it was opened; do not change a file in use", file.name());
    }
    std::copy(example.image.begin(), example.image.end(), image);
  }
  int32_t sample_label(int64_t index) const override { return records_[static_cast<size_t>(index)].label; }

  const Files files_;
  const std::vector<Record> records_;
};

// Records where each record of one file starts. The first record of the data set determines the shape of all.
void scan(const MappedFile& file, uint16_t number, SampleInfo& info, std::vector<Record>& records) {
  Bytes frame;
  if (file.size() == 0) fail(ExitCode::bad_input, "{}: is empty, expected at least one record", file.name());
  for (uint64_t offset = 0; offset < file.size();) {
    const View record = read_record(file, offset, frame);
    const TfrecordExample example = parse_tfrecord_example(record, file.name());
    if (records.empty()) static_cast<ImageShape&>(info) = example.shape;
    if (example.shape != info.shape()) {
      fail(ExitCode::bad_input, "{}: sample {} is {}, but the first is {}; expected one size", file.name(),
           records.size(), example.shape.text(), info.text());
    }
    records.push_back({offset, number, static_cast<uint16_t>(example.label)});
    info.classes = std::max(info.classes, static_cast<int>(example.label) + 1);
    offset += frame_bytes + record.size();
  }
}

}  // namespace

std::unique_ptr<SampleSource> open_tfrecords(const std::filesystem::path& path, const SetIdentity& set) {
  std::error_code ignored;
  const bool one_file = std::filesystem::exists(path, ignored);
  std::vector<std::filesystem::path> paths = {path};
  if (!one_file || path.filename().string().find("-of-") != std::string::npos) paths = find_shards(path);
  TfrecordSource::Files files;
  std::vector<Record> records;
  SampleInfo info;
  for (const std::filesystem::path& each : paths) {
    files.push_back(std::make_unique<MappedFile>(each));
    scan(*files.back(), static_cast<uint16_t>(files.size() - 1), info, records);
  }
  info.name = set.name;
  info.scale = set.scale.value_or(default_pixel_scale);
  info.description = fmt::format("TFRecord files {}, {} shards", printable(path), paths.size());
  info.count = std::ssize(records);
  return std::make_unique<TfrecordSource>(std::move(info), std::move(files), std::move(records));
}

}  // namespace hs
