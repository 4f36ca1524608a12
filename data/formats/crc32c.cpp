#include "data/formats/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "engine/check.h"

namespace hs {
namespace {

constexpr uint32_t polynomial = 0x82f63b78;  // 0x1EDC6F41 with its bits reversed

// One polynomial step for each bit of a byte.
constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> table = make_table();

#if defined(__x86_64__)

// The crc32 instruction takes three cycles and one can start in each cycle, so three streams run side by side. The CRC
// of a stream is joined to what follows it by advancing it over as many zero bytes: a linear map, in four tables.
constexpr size_t stream_bytes = 512;
using Advance = std::array<std::array<uint32_t, 256>, 4>;

constexpr Advance make_advance() {
  Advance advance{};
  std::array<uint32_t, 32> of_bit{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = uint32_t{1} << bit;
    for (size_t byte = 0; byte < stream_bytes; ++byte) crc = (crc >> 8) ^ table[crc & 0xff];
    of_bit[bit] = crc;
  }
  for (size_t part = 0; part < 4; ++part) {
    for (size_t value = 0; value < 256; ++value) {
      for (size_t bit = 0; bit < 8; ++bit) {
        if ((value >> bit & 1) != 0) advance[part][value] ^= of_bit[8 * part + bit];
      }
    }
  }
  return advance;
}
constexpr Advance advance = make_advance();

uint32_t over_zeros(uint32_t crc) {
  return advance[0][crc & 0xff] ^ advance[1][crc >> 8 & 0xff] ^ advance[2][crc >> 16 & 0xff] ^ advance[3][crc >> 24];
}

uint64_t load(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

[[gnu::target("sse4.2")]] uint32_t hardware(const uint8_t* at, size_t size, uint32_t before) {
  uint64_t crc = ~before;
  for (; size >= 3 * stream_bytes; at += 3 * stream_bytes, size -= 3 * stream_bytes) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < stream_bytes; i += 8) {
      crc = _mm_crc32_u64(crc, load(at + i));
      second = _mm_crc32_u64(second, load(at + stream_bytes + i));
      third = _mm_crc32_u64(third, load(at + 2 * stream_bytes + i));
    }
    crc = over_zeros(static_cast<uint32_t>(crc)) ^ second;
    crc = over_zeros(static_cast<uint32_t>(crc)) ^ third;
  }
  for (; size >= 8; at += 8, size -= 8) crc = _mm_crc32_u64(crc, load(at));
  auto tail = static_cast<uint32_t>(crc);
  for (; size > 0; ++at, --size) tail = _mm_crc32_u8(tail, *at);
  return ~tail;
}

#endif

}  // namespace

uint32_t crc32c_table(const void* bytes, size_t size, uint32_t before) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  uint32_t crc = ~before;
  for (size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ table[(crc ^ at[i]) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)
bool crc32c_has_hardware() { return __builtin_cpu_supports("sse4.2"); }
uint32_t crc32c_hardware(const void* bytes, size_t size, uint32_t before) {
  return hardware(static_cast<const uint8_t*>(bytes), size, before);
}
#else
bool crc32c_has_hardware() { return false; }
uint32_t crc32c_hardware(const void*, size_t, uint32_t) {
  fail(ExitCode::internal, "crc32c_hardware: this processor has no such instruction");
}
#endif

uint32_t crc32c(const void* bytes, size_t size, uint32_t before) {
  static const bool has_hardware = crc32c_has_hardware();
  return has_hardware ? crc32c_hardware(bytes, size, before) : crc32c_table(bytes, size, before);
}

}  // namespace hs
