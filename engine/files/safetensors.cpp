#include "engine/files/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/endian.h"
#include "engine/files/input_file.h"
#include "engine/files/output_file.h"

namespace hs {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they are in memory");

constexpr size_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100'000'000;
constexpr size_t max_rank = 8;
constexpr const char* metadata_name = "__metadata__";
constexpr const char* checksum_name = "crc32c";

struct FileType {
  const char* name;
  uint64_t bits;
};
constexpr FileType file_types[] = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"I16", 16},        {"U16", 16},    {"F16", 16},
    {"BF16", 16},   {"I32", 32},    {"U32", 32},        {"F32", 32},        {"I64", 64},    {"U64", 64},
    {"F64", 64},    {"C64", 64},    {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"F8_E8M0", 8}, {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

constexpr const char* file_type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::f64:
      return "F64";
    case DType::i32:
      return "I32";
    case DType::u8:
      return "U8";
  }
  return "";
}

constexpr DType engine_types[] = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::u8};

std::string text_of(const std::vector<int64_t>& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

template <class... Args>
[[noreturn]] void refuse(const std::string& file, fmt::format_string<Args...> format, Args&&... args) {
  fail(ExitCode::checkpoint, "{}: {}; the file is damaged or no safetensors file", file,
       fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void refuse_checksum(const std::string& file, fmt::format_string<Args...> format, Args&&... args) {
  fail(ExitCode::checkpoint, "{}: {}; the file is damaged (a program that changes it must leave out all checksums)",
       file, fmt::format(format, std::forward<Args>(args)...));
}

// Of a tensor whose rank fits.
Shape shape_of(const std::string& file, const SafetensorsEntry& entry) {
  const std::vector<int64_t>& dims = entry.shape;
  try {
    switch (dims.size()) {
      case 0:
        return {};
      case 1:
        return {dims[0]};
      case 2:
        return {dims[0], dims[1]};
      case 3:
        return {dims[0], dims[1], dims[2]};
      default:
        return {dims[0], dims[1], dims[2], dims[3]};
    }
  } catch (const Error&) {  // the format lets a tensor without elements have dimensions of any size
    fail(ExitCode::checkpoint, "{}: tensor {} is {}{}, whose strides exceed 63 bits; use smaller dimensions", file,
         printable_text(entry.name), entry.dtype, text_of(dims));
  }
}

// Reads the header's JSON and nothing that is not the format's: every level knows what may come next, so nesting,
// numbers with a sign, a point or an exponent, and names given twice end here. REQUIRES: `text` has no NUL, which
// nlohmann::json takes for its end
class Header : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header(const std::string& file, Metadata& metadata, std::vector<SafetensorsEntry>& entries)
      : file_(file), metadata_(metadata), entries_(entries) {}

  bool null() override { wrong("null"); }
  bool boolean(bool) override { wrong("true or false"); }
  bool number_integer(number_integer_t value) override { wrong(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { wrong(text); }
  bool binary(binary_t&) override { wrong("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::list) wrong(std::to_string(value));
    list_.push_back(value);
    if (list_.size() > max_rank) refuse(file_, "{} has more than {} numbers", where(), max_rank);
    return true;
  }
  bool string(string_t& value) override {
    if (level_ == Level::metadata) {
      metadata_[key_] = value;
    } else if (level_ == Level::entry && key_ == "dtype") {
      dtype_ = value;
    } else {
      wrong("a text");
    }
    return true;
  }
  bool start_object(size_t) override {
    if (level_ != Level::none && level_ != Level::top) wrong("an object");
    level_ = level_ == Level::none ? Level::top : name_ == metadata_name ? Level::metadata : Level::entry;
    return true;
  }
  bool key(string_t& value) override {
    key_ = value;
    if (level_ == Level::top) name_ = value;
    if (level_ == Level::entry && value != "dtype" && value != "shape" && value != "data_offsets") {
      refuse(file_, "{} is none of dtype, shape and data_offsets", where());
    }
    if (!(level_ == Level::top ? names_ : keys_).insert(value).second) refuse(file_, "{} is given twice", where());
    return true;
  }
  bool start_array(size_t) override {
    if (level_ != Level::entry || key_ == "dtype") wrong("a list");
    level_ = Level::list;
    list_.clear();
    return true;
  }
  bool end_array() override {
    level_ = Level::entry;
    (key_ == "shape" ? shape_ : offsets_) = list_;
    return true;
  }
  bool end_object() override {
    if (level_ == Level::entry) add_entry();
    level_ = Level::top;
    keys_.clear();
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    refuse(file_, "the header is not JSON, at byte {}", byte);
  }

 private:
  enum class Level { none, top, metadata, entry, list };

  [[noreturn]] void wrong(const std::string& what) const {
    refuse(file_, "{} is {}, expected {}", where(), printable_text(what),
           level_ == Level::none || level_ == Level::top ? "an object"
           : level_ == Level::metadata                   ? "a text"
           : level_ == Level::list                       ? "whole numbers from 0 to 18446744073709551615"
           : key_ == "dtype"                             ? "a text"
                                                         : "a list");
  }
  std::string where() const {
    if (level_ == Level::none) return "the header";
    const std::string name = printable_text(name_);
    return level_ == Level::top ? name : fmt::format("{} of {}", printable_text(key_), name);
  }

  void add_entry() {
    const std::string name = printable_text(name_);
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!keys_.contains(key)) refuse(file_, "tensor {} has no {}", name, key);
    }
    const auto* type = std::ranges::find(file_types, dtype_, &FileType::name);
    if (type == std::end(file_types)) refuse(file_, "tensor {} has the unknown dtype {}", name, printable_text(dtype_));
    // Multiplied in this order, even if a 0 follows: a product that wraps to 0 must not pass for an empty tensor.
    uint64_t bits = type->bits;
    for (const uint64_t dim : shape_) {
      if (dim > INT64_MAX || __builtin_mul_overflow(bits, dim, &bits)) {
        refuse(file_, "tensor {} of shape ({}) has more than 2^64 bits", name, fmt::join(shape_, ", "));
      }
    }
    if (bits % 8 != 0) refuse(file_, "tensor {} of {} bits does not fill its last byte", name, bits);
    if (offsets_.size() != 2) refuse(file_, "tensor {} has {} data_offsets, expected 2", name, offsets_.size());
    if (offsets_[1] < offsets_[0] || offsets_[1] - offsets_[0] != bits / 8) {
      refuse(file_, "tensor {} is said to be {} bytes but stands from {} to {}", name, bits / 8, offsets_[0],
             offsets_[1]);
    }
    entries_.push_back({name_, dtype_, {shape_.begin(), shape_.end()}, offsets_[0], offsets_[1]});
  }

  const std::string& file_;
  Metadata& metadata_;
  std::vector<SafetensorsEntry>& entries_;
  Level level_ = Level::none;
  std::string name_, key_, dtype_;  // the top level's member, the current one, and the tensor's type
  std::set<std::string> names_, keys_;
  std::vector<uint64_t> list_, shape_, offsets_;
};

// What no tensor's checksum covers, in an order that does not depend on the file: another program may write the same
// contents in another order.
uint32_t header_checksum(const Metadata& metadata, const std::vector<SafetensorsEntry>& entries) {
  uint32_t sum = 0;
  const auto add = [&sum](const std::string& text) { sum = crc32c(text.c_str(), text.size() + 1, sum); };
  for (const auto& [key, text] : metadata) {
    add(key);
    add(text);
  }
  std::map<std::string_view, const SafetensorsEntry*> by_name;
  for (const SafetensorsEntry& entry : entries) by_name[entry.name] = &entry;
  for (const auto& [name, entry] : by_name) {
    add(entry->name);
    add(entry->dtype + text_of(entry->shape));
  }
  return sum;
}

std::string hex(uint32_t checksum) { return fmt::format("{:08x}", checksum); }
std::string checksum_of(const std::string& tensor) { return std::string(checksum_name) + "." + tensor; }
bool is_checksum(const std::string& key) {
  return key == checksum_name || key.starts_with(std::string(checksum_name) + ".");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(std::make_unique<InputFile>(path)) {
  std::array<uint8_t, length_bytes> length;
  if (file_->read_at(0, length.data(), length_bytes) < length_bytes) {
    refuse(name(), "{} bytes, expected {} or more", file_->size(), length_bytes);
  }
  const auto size = get_little_endian<uint64_t>(length.data());
  if (size > max_header_bytes) {
    refuse(name(), "a header of {} bytes, expected at most {}", size, max_header_bytes);
  }
  if (size > file_->size() - length_bytes) {
    refuse(name(), "a header of {} bytes, but only {} follow", size, file_->size() - length_bytes);
  }
  std::string text(size, '\0');
  file_->read_at(length_bytes, reinterpret_cast<uint8_t*>(text.data()), size);
  // The parser would skip a byte order mark, and take a NUL for the end.
  const size_t brace = text.find_first_not_of(" \t\n\r"), nul = text.find('\0');
  if (brace == std::string::npos || text[brace] != '{') refuse(name(), "the header does not begin with {{");
  if (nul != std::string::npos) refuse(name(), "the header is not JSON, at byte {} of {}", nul + 1, size);
  Header header(name(), metadata_, entries_);
  nlohmann::json::sax_parse(text, &header);

  std::ranges::sort(entries_, {}, [](const SafetensorsEntry& entry) { return std::pair(entry.begin, entry.end); });
  const uint64_t data = length_bytes + size, data_bytes = file_->size() - data;
  uint64_t end = 0;
  for (SafetensorsEntry& entry : entries_) {
    if (entry.begin != end) {
      refuse(name(), "tensor {} begins at byte {} of the data, expected {}", printable_text(entry.name), entry.begin,
             end);
    }
    end = entry.end;
    entry.begin += data;  // wraps for an end beyond the file, which is refused next
    entry.end += data;
  }
  if (end != data_bytes) refuse(name(), "the tensors are {} bytes, but {} follow the header", end, data_bytes);
  for (const SafetensorsEntry& entry : entries_) by_name_[entry.name] = &entry;
  check_header();
}

SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::name() const { return file_->name(); }

const SafetensorsEntry* SafetensorsFile::find(std::string_view tensor) const {
  const auto found = by_name_.find(tensor);
  return found == by_name_.end() ? nullptr : found->second;
}

void SafetensorsFile::check_header() {
  for (auto at = metadata_.begin(); at != metadata_.end();) {
    const auto here = at++;
    if (is_checksum(here->first)) checksums_.insert(metadata_.extract(here));
  }
  if (checksums_.empty()) return;
  for (const auto& [key, sum] : checksums_) {
    if (key != checksum_name && find(key.substr(checksum_of("").size())) == nullptr) {
      refuse_checksum(name(), "the checksum {} belongs to no tensor", printable_text(key));
    }
  }
  if (checksums_.size() != 1 + entries_.size()) {
    refuse_checksum(name(), "{} checksums for the header and {} tensors", checksums_.size(), entries_.size());
  }
  const std::string found = hex(header_checksum(metadata_, entries_)), said = checksums_.at(checksum_name);
  if (found != said) {
    refuse_checksum(name(), "the header has the CRC32C {}, expected {}", found, printable_text(said));
  }
}

Tensor SafetensorsFile::read(const SafetensorsEntry& entry) const {
  const std::string tensor = printable_text(entry.name);
  const auto type = std::ranges::find(engine_types, entry.dtype, file_type_of);
  if (type == std::end(engine_types) || entry.shape.size() > Shape::max_rank) {
    fail(ExitCode::checkpoint,
         "{}: tensor {} is {}{}, expected F32, F16, BF16, F64, I32 or U8 of at most {} dimensions", name(), tensor,
         entry.dtype, text_of(entry.shape), Shape::max_rank);
  }
  Tensor values = Tensor::empty(shape_of(name(), entry), *type);
  auto* to = static_cast<uint8_t*>(values.mutable_raw_data());
  if (file_->read_at(entry.begin, to, values.bytes()) != values.bytes()) {
    refuse(name(), "it ends inside the tensor {}", tensor);
  }
  const auto said = checksums_.find(checksum_of(entry.name));
  const std::string found = said == checksums_.end() ? "" : hex(crc32c(to, values.bytes()));
  if (said != checksums_.end() && found != said->second) {
    refuse_checksum(name(), "tensor {} has the CRC32C {}, expected {}", tensor, found, printable_text(said->second));
  }
  return values;
}

void write_safetensors(OutputFile& file, const std::vector<NamedTensor>& tensors, const Metadata& metadata) {
  if (file.is_stream()) fail(ExitCode::io, "{}: is no regular file, expected one", printable(file.path()));
  // The largest types first, then by name, as the reference does: every tensor is then aligned to its type.
  std::vector<NamedTensor> sorted;
  for (const NamedTensor& one : tensors) {
    check(one.tensor.defined(), "write_safetensors: tensor {} is undefined", printable_text(one.name));
    check(one.name != metadata_name, "write_safetensors: a tensor cannot be called {}", metadata_name);
    sorted.push_back({one.name, one.tensor.to(Device::cpu)});
  }
  std::ranges::sort(sorted, {}, [](const NamedTensor& one) {
    return std::pair(-static_cast<int>(size_of(one.tensor.dtype())), std::string_view(one.name));
  });

  for (const auto& [key, text] : metadata) {
    check(!is_checksum(key), "write_safetensors: {} of the metadata is a name of the format's", printable_text(key));
  }

  using Json = nlohmann::ordered_json;
  std::vector<SafetensorsEntry> entries;
  Json header = {{metadata_name, nullptr}}, texts = metadata;
  // Vectors, which operator[] would search each time.
  auto &members = header.get_ref<Json::object_t&>(), &sums = texts.get_ref<Json::object_t&>();
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const auto& [name, tensor] : sorted) {
    const Shape& shape = tensor.shape();
    std::vector<int64_t> dims(static_cast<size_t>(shape.rank()));
    for (int axis = 0; axis < shape.rank(); ++axis) dims[static_cast<size_t>(axis)] = shape[axis];
    entries.push_back({name, file_type_of(tensor.dtype()), dims, end, end + tensor.bytes()});
    end += tensor.bytes();
    check(names.insert(name).second, "write_safetensors: two tensors are called {}", printable_text(name));
    const Json offsets = {end - tensor.bytes(), end};
    members.emplace_back(name, Json{{"dtype", entries.back().dtype}, {"shape", dims}, {"data_offsets", offsets}});
    sums.emplace_back(checksum_of(name), hex(crc32c(tensor.raw_data(), tensor.bytes())));
  }
  sums.emplace_back(checksum_name, hex(header_checksum(metadata, entries)));
  header[metadata_name] = std::move(texts);

  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error& error) {
    fail(ExitCode::usage, "write_safetensors: names and metadata must be UTF-8: {}", error.what());
  }
  text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');
  check(text.size() <= max_header_bytes, "write_safetensors: a header of {} bytes, the format has at most {}",
        text.size(), max_header_bytes);

  std::array<uint8_t, length_bytes> length;
  put_little_endian(length.data(), uint64_t{text.size()});
  file.write(length.data(), length.size());
  file.write(text);
  for (const NamedTensor& one : sorted) file.write(one.tensor.raw_data(), one.tensor.bytes());
  file.finish();
  try {
    const SafetensorsFile written(file.unkept_path());
    for (const SafetensorsEntry& entry : written.entries()) written.read(entry);
  } catch (const Error& error) {
    fail(ExitCode::io, "{}: does not read back as it was written; the disk or the memory is faulty: {}",
         printable(file.path()), error.what());
  }
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata) {
  std::deque<OutputFile> files;
  write_safetensors(files.emplace_back(path), tensors, metadata);
  keep_all(files);
}

}  // namespace hs
