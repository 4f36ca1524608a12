// Little-endian numbers in the headers of files, whatever the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hs {

template <class Number>
void put_little_endian(uint8_t* to, Number number) {
  static_assert(std::is_unsigned_v<Number>);
  for (size_t i = 0; i < sizeof(Number); ++i) to[i] = static_cast<uint8_t>(number >> (8 * i));
}

template <class Number>
Number get_little_endian(const uint8_t* from) {
  static_assert(std::is_unsigned_v<Number>);
  Number number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) number |= static_cast<Number>(Number{from[i]} << (8 * i));
  return number;
}

}  // namespace hs
