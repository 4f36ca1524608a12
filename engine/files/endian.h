// Numbers in files, least or most significant byte first, whatever the machine.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace hs {

template <std::unsigned_integral Number>
void put_little_endian(uint8_t* to, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) to[i] = static_cast<uint8_t>(number >> (8 * i));
}

template <std::unsigned_integral Number>
Number get_little_endian(const uint8_t* from) {
  Number number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) number |= static_cast<Number>(Number{from[i]} << (8 * i));
  return number;
}

inline void put_big_endian(uint8_t* to, uint32_t number) {
  for (size_t i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(number >> (24 - 8 * i));
}

inline uint32_t get_big_endian(const uint8_t* from) {
  return uint32_t{from[0]} << 24 | uint32_t{from[1]} << 16 | uint32_t{from[2]} << 8 | from[3];
}

}  // namespace hs
