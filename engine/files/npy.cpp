#include "engine/files/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/check.h"
#include "engine/files/endian.h"
#include "engine/files/input_file.h"
#include "engine/parsed_number.h"

namespace hs {
namespace {

constexpr const char* numpy_types[] = {"<f4", "<f2", nullptr, "<f8", "<i4", "|u1"};  // by DType
struct NumpyType {
  std::string_view name;  // without the byte order
  DType dtype;            // that it is read as
  size_t bytes;
};
constexpr NumpyType read_types[] = {{"f4", DType::f32, 4}, {"f2", DType::f16, 2}, {"f8", DType::f64, 8},
                                    {"u1", DType::u8, 1},  {"b1", DType::u8, 1},  {"i1", DType::i32, 1},
                                    {"i2", DType::i32, 2}, {"i4", DType::i32, 4}, {"i8", DType::i32, 8},
                                    {"u2", DType::i32, 2}, {"u4", DType::i32, 4}, {"u8", DType::i32, 8}};
constexpr std::string_view magic = "\x93NUMPY";
constexpr uint64_t max_header = 1 << 16;  // bytes; NumPy's are below 200

// The text between `before` and `after` in a header, a Python dict; empty if there is none.
std::string_view between(std::string_view header, std::string_view before, std::string_view after) {
  const size_t begin = header.find(before);
  if (begin == std::string_view::npos) return {};
  header.remove_prefix(begin + before.size());
  return header.substr(0, header.find(after));
}

// The header's text, and where the values begin.
std::string read_header(const InputFile& file, uint64_t& values) {
  uint8_t start[12] = {};
  const size_t got = file.read_at(0, start, sizeof start);
  const uint8_t version = start[6];
  values = version == 1 ? 10 : 12;
  if (got < values || std::memcmp(start, magic.data(), magic.size()) != 0 || version < 1 || version > 3) {
    fail(ExitCode::bad_input, "{}: is no .npy file of version 1 to 3, expected one that numpy.save has written",
         file.name());
  }
  const uint64_t length =
      version == 1 ? get_little_endian<uint16_t>(start + 8) : get_little_endian<uint32_t>(start + 8);
  std::string header(std::min(length, max_header), ' ');
  if (file.read_at(values, reinterpret_cast<uint8_t*>(header.data()), header.size()) != length) {
    fail(ExitCode::bad_input, "{}: a header of {} bytes, which the file does not have; save it again", file.name(),
         length);
  }
  values += length;
  return header;
}

// "10, 4" or "10,"
std::vector<int64_t> read_dims(std::string_view text, const std::string& file) {
  std::vector<int64_t> dims;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view word = rest.substr(0, comma);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    const auto dim = parsed_number<int64_t>(word);
    if (!dim || *dim < 0 || dims.size() == Shape::max_rank) {
      fail(ExitCode::bad_input, "{}: its shape is ({}), expected at most {} dimensions", file, printable_text(text),
           Shape::max_rank);
    }
    dims.push_back(*dim);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return dims;
}

// Little-endian integers to i32.
void narrow(const std::vector<uint8_t>& bytes, const NumpyType& type, const std::string& file, Tensor& values) {
  auto* const to = values.mutable_data<int32_t>();
  for (int64_t i = 0; i < values.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + static_cast<size_t>(i) * type.bytes, type.bytes);
    const auto unused = static_cast<int>(64 - 8 * type.bytes);
    const bool is_signed = type.name[0] == 'i';
    const int64_t number = is_signed ? static_cast<int64_t>(bits << unused) >> unused : static_cast<int64_t>(bits);
    to[i] = static_cast<int32_t>(number);
    if (to[i] == number && (is_signed || number >= 0)) continue;
    fail(ExitCode::bad_input, "{}: value {} is {}, which does not fit 32 bits", file, i,
         is_signed ? fmt::to_string(number) : fmt::to_string(bits));
  }
}

}  // namespace

std::string to_npy(const Tensor& tensor) {
  const char* const type = numpy_types[static_cast<int>(tensor.dtype())];
  check(type != nullptr, "npy: NumPy has no type for {}; cast the tensor to f32 first", name(tensor.dtype()));
  constexpr size_t alignment = 64, before_header = 10;  // of the values; magic, version and the header's length
  const Tensor values = tensor.to(Device::cpu);
  std::string shape;
  for (int axis = 0; axis < values.shape().rank(); ++axis) shape += std::to_string(values.shape()[axis]) + ",";
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  const size_t used = before_header + header.size() + 1;
  header.append((alignment - used % alignment) % alignment, ' ').append("\n");
  std::string file = std::string(magic).append("\x01\x00", 2);
  file += static_cast<char>(header.size() & 255);
  file += static_cast<char>(header.size() >> 8);
  return (file + header).append(static_cast<const char*>(values.raw_data()), values.bytes());
}

Tensor read_npy(const std::filesystem::path& path) {
  const InputFile file(path);
  uint64_t begin = 0;
  const std::string header = read_header(file, begin);
  const std::string_view type = between(header, "'descr': '", "'");  // "<f4": byte order, kind, bytes
  const std::string_view order = between(header, "'fortran_order': ", ",");
  if (order == "True") {
    fail(ExitCode::bad_input, "{}: is in Fortran order; in NumPy, save numpy.ascontiguousarray(x)", file.name());
  }
  const std::vector<int64_t> dims = read_dims(between(header, "'shape': (", ")"), file.name());
  const auto* const found =
      std::ranges::find(read_types, type.substr(std::min<size_t>(1, type.size())), &NumpyType::name);
  if (order != "False" || type.starts_with('>') || found == std::end(read_types)) {
    fail(ExitCode::bad_input,
         "{}: values of NumPy's type {}, expected little-endian floats or integers of at most 64 bits; in NumPy, save "
         "x.astype(\"float32\")",
         file.name(), type.empty() ? "(fields)" : printable_text(type));
  }
  uint64_t bytes = found->bytes, product = 1;
  for (const int64_t dim : dims) {
    const uint64_t times = std::max<int64_t>(dim, 1);  // a dimension beside one of 0 must be sensible, too
    product = product > file.size() / times ? file.size() + 1 : product * times;
    bytes *= static_cast<uint64_t>(dim);
  }
  if (product > file.size() || bytes != file.size() - begin) {
    fail(ExitCode::bad_input, "{}: {} bytes of values, which is not what its shape ({}) of {} takes; save it again",
         file.name(), file.size() - begin, fmt::join(dims, ", "), type);
  }
  Tensor values = Tensor::empty(Shape(dims), found->dtype);
  const bool is_as_here = found->dtype != DType::i32 || found->name == "i4";
  std::vector<uint8_t> others(is_as_here ? 0 : bytes);
  auto* const to = is_as_here ? static_cast<uint8_t*>(values.mutable_raw_data()) : others.data();
  if (file.read_at(begin, to, bytes) != bytes) {
    fail(ExitCode::bad_input, "{}: has become shorter while it was read", file.name());
  }
  if (!is_as_here) narrow(others, *found, file.name(), values);
  return values;
}

}  // namespace hs
