#include "engine/files/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
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

using Json = nlohmann::json;
using ByName = std::map<std::string_view, const SafetensorsEntry*>;

struct FileType {
  const char* name;
  uint64_t bits;
  std::optional<DType> dtype = {};  // the engine's
};
// clang-format off
constexpr FileType file_types[] = {
    {"F32", 32, DType::f32}, {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16},
    {"F64", 64, DType::f64}, {"I32", 32, DType::i32}, {"U8", 8, DType::u8},
    {"BOOL", 8}, {"I8", 8}, {"I16", 16}, {"U16", 16}, {"U32", 32}, {"I64", 64}, {"U64", 64}, {"C64", 64},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};
// clang-format on

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

// Refuses what the parser would take but the format has not: a name that is given twice, and nesting, before memory is
// allocated for it. (A callback of Json::parse() would see the same, but then the parser scans all tensors after each.)
class HeaderCheck : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderCheck(const std::string& file) : file_(file) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(size_t) override { return begin(); }
  bool start_array(size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (!names_[depth_ - 1].insert(name).second) refuse(file_, "{} is given twice", printable_text(name));
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool begin() {
    if (depth_ > 2) refuse(file_, "the header has a list or an object inside of a tensor's members");
    names_[depth_++].clear();
    numbers_ = 0;
    return true;
  }
  bool end() { return depth_-- > 0; }
  bool value() {
    if (depth_ > 2 && ++numbers_ > max_rank) refuse(file_, "a list of the header has more than {} members", max_rank);
    return true;
  }

  const std::string& file_;
  std::set<std::string> names_[3];  // so far, in each open object
  size_t depth_ = 0, numbers_ = 0;  // in the current list
};

Json parse_header(const std::string& file, const std::string& text) {
  HeaderCheck check(file);
  Json::sax_parse(text, &check);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    refuse(file, "the header is not JSON, at byte {}", error.byte);
  } catch (const Json::out_of_range&) {
    refuse(file, "the header has a number of more than 64 bits");
  }
}

SafetensorsEntry read_entry(const std::string& file, const std::string& key, const Json& tensor) {
  const std::string name = printable_text(key);
  const auto has = [&](const char* member, size_t least, size_t most) {
    const auto found = tensor.find(member);
    if (found == tensor.end() || !found->is_array() || found->size() < least || found->size() > most) return false;
    return std::ranges::all_of(*found, [](const Json& each) { return each.is_number_unsigned(); });
  };
  const bool is_entry =
      tensor.is_object() && tensor.size() == 3 && tensor.contains("dtype") && tensor["dtype"].is_string();
  if (!is_entry || !has("shape", 0, max_rank) || !has("data_offsets", 2, 2)) {
    refuse(file, "tensor {} is not a dtype, a shape of up to {} whole numbers from 0 and two data_offsets", name,
           max_rank);
  }
  const auto dtype = tensor["dtype"].get<std::string>();
  const auto shape = tensor["shape"].get<std::vector<uint64_t>>();
  const auto begin = tensor["data_offsets"][0].get<uint64_t>(), end = tensor["data_offsets"][1].get<uint64_t>();
  const auto* type = std::ranges::find(file_types, dtype, &FileType::name);
  if (type == std::end(file_types)) refuse(file, "tensor {} has the unknown dtype {}", name, printable_text(dtype));
  // Multiplied in this order, even if a 0 follows: a product that wraps to 0 must not pass for an empty tensor.
  uint64_t bits = type->bits;
  for (const uint64_t dim : shape) {
    if (dim > INT64_MAX || __builtin_mul_overflow(bits, dim, &bits)) {
      refuse(file, "tensor {} of shape ({}) has more than 2^64 bits", name, fmt::join(shape, ", "));
    }
  }
  if (bits % 8 != 0) refuse(file, "tensor {} of {} bits does not fill its last byte", name, bits);
  if (end < begin || end - begin != bits / 8) {
    refuse(file, "tensor {} is said to be {} bytes but stands from {} to {}", name, bits / 8, begin, end);
  }
  return {key, dtype, {shape.begin(), shape.end()}, begin, end};
}

// What no tensor's checksum covers, in an order that does not depend on the file: another program may write the same
// contents in another order.
uint32_t header_checksum(const Metadata& metadata, const ByName& entries) {
  uint32_t sum = 0;
  const auto add = [&sum](const std::string& text) { sum = crc32c(text.c_str(), text.size() + 1, sum); };
  for (const auto& [key, text] : metadata) {
    add(key);
    add(text);
  }
  for (const auto& [name, entry] : entries) {
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

// Padded, so that the tensors are aligned.
std::string header_text(const std::vector<SafetensorsEntry>& entries, const Metadata& metadata) {
  std::string text;
  try {
    text = fmt::format(R"({{"{}":{})", metadata_name, Json(metadata).dump());
    for (const SafetensorsEntry& entry : entries) {
      text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", Json(entry.name).dump(),
                          entry.dtype, fmt::join(entry.shape, ","), entry.begin, entry.end);
    }
    text += "}";
  } catch (const Json::type_error& error) {
    fail(ExitCode::usage, "write_safetensors: names and metadata must be UTF-8: {}", error.what());
  }
  text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');
  check(text.size() <= max_header_bytes, "write_safetensors: a header of {} bytes, the format has at most {}",
        text.size(), max_header_bytes);
  return text;
}

}  // namespace

std::string list_text(const std::vector<std::string>& texts) { return Json(texts).dump(); }

std::optional<std::vector<std::string>> listed_texts(const std::string& list) {
  const Json parsed = Json::parse(list, nullptr, false);
  if (!parsed.is_array() || !std::ranges::all_of(parsed, &Json::is_string)) return std::nullopt;
  return parsed.get<std::vector<std::string>>();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(std::make_unique<InputFile>(path)) {
  std::array<uint8_t, length_bytes> length;
  if (file_->read_at(0, length.data(), length_bytes) < length_bytes) {
    refuse(name(), "{} bytes, expected {} or more", file_->size(), length_bytes);
  }
  const auto size = get_little_endian<uint64_t>(length.data());
  if (size > max_header_bytes) {
    refuse(name(), "it begins with a header of {} bytes, expected at most {}", size, max_header_bytes);
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
  const Json header = parse_header(name(), text);
  for (const auto& [key, value] : header.items()) {
    if (key != metadata_name) {
      entries_.push_back(read_entry(name(), key, value));
      continue;
    }
    if (!value.is_object() || !std::ranges::all_of(value, &Json::is_string)) {
      refuse(name(), "{} is not texts by name", metadata_name);
    }
    metadata_ = value.get<Metadata>();
  }
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
  const std::string found = hex(header_checksum(metadata_, by_name_)), said = checksums_.at(checksum_name);
  if (found != said) {
    refuse_checksum(name(), "the header has the CRC32C {}, expected {}", found, printable_text(said));
  }
}

Tensor SafetensorsFile::read(const SafetensorsEntry& entry) const {
  const std::string tensor = printable_text(entry.name);
  const std::vector<int64_t>& dims = entry.shape;
  const std::optional<DType> dtype = std::ranges::find(file_types, entry.dtype, &FileType::name)->dtype;
  if (!dtype || dims.size() > Shape::max_rank) {
    fail(ExitCode::checkpoint,
         "{}: tensor {} is {}{}, expected F32, F16, BF16, F64, I32 or U8 of at most {} dimensions", name(), tensor,
         entry.dtype, text_of(dims), Shape::max_rank);
  }
  Shape shape;
  try {
    shape = Shape(dims);
  } catch (const Error&) {  // the format lets a tensor without elements have dimensions of any size
    fail(ExitCode::checkpoint, "{}: tensor {} is {}{}, whose strides exceed 63 bits; use smaller dimensions", name(),
         tensor, entry.dtype, text_of(dims));
  }
  Tensor values = Tensor::empty(shape, *dtype);
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
  std::vector<SafetensorsEntry> entries;
  Metadata texts = metadata;
  uint64_t end = 0;
  for (const auto& [name, tensor] : sorted) {
    std::vector<int64_t> dims;
    dims.reserve(static_cast<size_t>(tensor.shape().rank()));
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) dims.push_back(tensor.shape()[axis]);
    const auto* type = std::ranges::find(file_types, std::optional(tensor.dtype()), &FileType::dtype);
    entries.push_back({name, type->name, std::move(dims), end, end + tensor.bytes()});
    end += tensor.bytes();
    texts[checksum_of(name)] = hex(crc32c(tensor.raw_data(), tensor.bytes()));
  }
  ByName by_name;
  for (const SafetensorsEntry& entry : entries) {
    check(by_name.emplace(entry.name, &entry).second, "write_safetensors: two tensors are called {}",
          printable_text(entry.name));
  }
  texts[checksum_name] = hex(header_checksum(metadata, by_name));

  const std::string text = header_text(entries, texts);
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
