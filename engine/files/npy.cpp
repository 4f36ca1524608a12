#include "engine/files/npy.h"

#include "engine/check.h"

namespace hs {
namespace {

const char* numpy_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "<f4";
    case DType::f16:
      return "<f2";
    case DType::f64:
      return "<f8";
    case DType::i32:
      return "<i4";
    case DType::u8:
      return "|u1";
    case DType::bf16:
      break;
  }
  fail(ExitCode::usage, "npy: NumPy has no type for {}; cast the tensor to f32 first", name(dtype));
}

}  // namespace

std::string to_npy(const Tensor& tensor) {
  constexpr size_t alignment = 64, before_header = 10;  // of the values; magic, version and the header's length
  const Tensor values = tensor.to(Device::cpu);
  std::string shape;
  for (int axis = 0; axis < values.shape().rank(); ++axis) shape += std::to_string(values.shape()[axis]) + ",";
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", numpy_type(values.dtype()), shape);
  const size_t used = before_header + header.size() + 1;
  header.append((alignment - used % alignment) % alignment, ' ').append("\n");
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 255);
  file += static_cast<char>(header.size() >> 8);
  return (file + header).append(static_cast<const char*>(values.raw_data()), values.bytes());
}

}  // namespace hs
