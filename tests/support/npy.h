// Reads numpy's .npy files, limited to the features of the golden files: version 1.0, little-endian, C order.
// Format: "\x93NUMPY", version, u16 length, then a Python dict as text: {'descr': '<f4', 'fortran_order': False,
// 'shape': (9, 32), }, padded with spaces and a newline; then the values (numpy.lib.format in the numpy manual).
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/check.h"

namespace hs {

// numpy's name for a C++ type.
template <class T>
inline constexpr std::string_view npy_dtype = std::is_same_v<T, float>     ? "<f4"
                                              : std::is_same_v<T, double>  ? "<f8"
                                              : std::is_same_v<T, int32_t> ? "<i4"
                                              : std::is_same_v<T, uint8_t> ? "|u1"
                                                                           : "";

struct NpyArray {
  std::vector<int64_t> shape;
  std::string dtype;  // "<f4", "<f8", "<i4" or "|u1"
  std::vector<char> bytes;

  // Throws Error (bad_input) if the file contains another type. The span is valid while the array is alive.
  template <class T>
  std::span<const T> as() const {
    static_assert(!npy_dtype<T>.empty());
    if (dtype != npy_dtype<T>) fail(ExitCode::bad_input, "npy: values are {}, not {}", dtype, npy_dtype<T>);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// Throws Error: io if the file cannot be read, bad_input if it does not have the format above.
inline NpyArray read_npy(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ExitCode::io, "{}: cannot read", path.string());
  const std::string all(std::istreambuf_iterator<char>(file), {});
  static const std::regex header(
      R"(\{'descr': '(<f4|<f8|<i4|\|u1)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n)");
  const bool has_magic = all.size() >= 10 && all.starts_with(std::string_view("\x93NUMPY\x01\x00", 8));
  const size_t length = has_magic ? static_cast<uint8_t>(all[8]) + 256u * static_cast<uint8_t>(all[9]) : 0;
  const std::string text = has_magic ? all.substr(10, length) : "";
  std::smatch found;
  if (!std::regex_match(text, found, header))
    fail(ExitCode::bad_input, "{}: not a .npy file of version 1.0 with f4, f8, i4 or u1 in C order", path.string());

  NpyArray array;
  array.dtype = found[1];
  size_t bytes = static_cast<size_t>(array.dtype[2] - '0');
  std::string shape = found[2];
  std::ranges::replace(shape, ',', ' ');
  std::istringstream sizes(shape);
  for (int64_t size = 0; sizes >> size; bytes *= static_cast<size_t>(size)) array.shape.push_back(size);
  array.bytes.assign(all.begin() + 10 + std::ssize(text), all.end());
  if (array.bytes.size() != bytes)
    fail(ExitCode::bad_input, "{}: {} bytes of values, its shape says {}", path.string(), array.bytes.size(), bytes);
  return array;
}

}  // namespace hs
