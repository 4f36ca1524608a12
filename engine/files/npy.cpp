#include "engine/files/npy.h"

#include "engine/check.h"

namespace hs {
namespace {

constexpr const char* numpy_types[] = {"<f4", "<f2", nullptr, "<f8", "<i4", "|u1"};  // by DType

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
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 255);
  file += static_cast<char>(header.size() >> 8);
  return (file + header).append(static_cast<const char*>(values.raw_data()), values.bytes());
}

}  // namespace hs
