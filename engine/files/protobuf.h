// Protocol buffers, the writing half: a message is the text of its fields one after the other, and a field that is a
// message holds its text, so messages are built from the inside out.
//   string person = field(1, "Ada") + field(2, field(1, "London")) + number_field(3, 36);
// Format: protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/files/endian.h"

namespace hs::protobuf {

inline std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

// A field whose value is bytes: a string, packed numbers, or another message.
inline std::string field(uint64_t number, std::string_view bytes) {
  return varint(number << 3 | 2).append(varint(bytes.size())).append(bytes);
}

// int64, int32, enum; negative numbers take ten bytes.
inline std::string number_field(uint64_t number, int64_t value) {
  return varint(number << 3).append(varint(static_cast<uint64_t>(value)));
}

template <class Bits>
std::string fixed_field(uint64_t number, uint64_t wire_type, Bits bits) {
  uint8_t bytes[sizeof(Bits)];
  put_little_endian(bytes, bits);
  return varint(number << 3 | wire_type).append(reinterpret_cast<const char*>(bytes), sizeof(bytes));
}
inline std::string float_field(uint64_t number, float value) {
  return fixed_field(number, 5, std::bit_cast<uint32_t>(value));
}
inline std::string double_field(uint64_t number, double value) {
  return fixed_field(number, 1, std::bit_cast<uint64_t>(value));
}

}  // namespace hs::protobuf
