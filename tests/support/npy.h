// Reads numpy's .npy files, limited to the features of the golden files: version 1.0, little-endian, C order.
// Format: "\x93NUMPY", version, u16 length, then a Python dict as text: {'descr': '<f4', 'fortran_order': False,
// 'shape': (9, 32), }, padded with spaces and a newline; then the values (numpy.lib.format in the numpy manual).
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
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
  std::error_code no_size;
  const auto size = std::filesystem::file_size(path, no_size);
  std::string all(no_size ? 0 : size, '\0');
  if (no_size || !std::ifstream(path, std::ios::binary).read(all.data(), static_cast<std::streamsize>(size)))
    fail(ExitCode::io, "{}: cannot read", path.string());
  const auto require = [&](bool condition, std::string_view what) {
    if (!condition) fail(ExitCode::bad_input, "{}: {}", path.string(), what);
  };
  require(size >= 10 && all.starts_with(std::string_view("\x93NUMPY\x01\x00", 8)), "not a .npy file of version 1.0");
  const size_t data = 10 + static_cast<uint8_t>(all[8]) + 256 * static_cast<uint8_t>(all[9]);
  require(size >= data, "truncated header");
  const std::string header = all.substr(10, data - 10);
  const auto after = [&](std::string_view key) {
    const size_t at = header.find(key);
    require(at != std::string::npos, "header without descr, fortran_order: False and shape");
    return header.substr(at + key.size());
  };

  NpyArray array;
  array.dtype = after("'descr': '").substr(0, 3);
  const size_t item = array.dtype == "<f8" ? 8 : array.dtype == "<f4" || array.dtype == "<i4" ? 4 : 1;
  require(item > 1 || array.dtype == "|u1", "values are not f4, f8, i4 (little-endian) or u1");
  after("'fortran_order': False");
  size_t count = 1;
  const std::string shape = after("'shape': (");
  for (const char* p = shape.c_str(); *p != ')'; p += std::strspn(p, ", ")) {
    char* end = nullptr;
    array.shape.push_back(std::strtoll(p, &end, 10));
    require(end != p && array.shape.back() >= 0 && array.shape.back() < (1 << 24), "shape is not a list of sizes");
    require((count *= static_cast<size_t>(array.shape.back())) <= size, "shape is larger than the file");
    p = end;
  }
  require(size - data == count * item, "the number of values is not what the shape says");
  array.bytes.assign(all.begin() + static_cast<std::ptrdiff_t>(data), all.end());
  return array;
}

}  // namespace hs
