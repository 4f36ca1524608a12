#include "engine/files/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>

#include "engine/cpu_features.h"
#endif

namespace hs {
namespace {

// One step for each bit of a byte, by the polynomial with its bits reversed.
constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> table = make_table();

#if defined(__x86_64__)
#define HS_TARGET_CRC32 [[gnu::target("sse4.2")]]
#define HS_CRC32_U64 _mm_crc32_u64
#define HS_CRC32_U8 _mm_crc32_u8
bool has_crc32() { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__)
#define HS_TARGET_CRC32 [[gnu::target("arch=armv8-a+crc")]]
#define HS_CRC32_U64 __crc32cd
#define HS_CRC32_U8 __crc32cb
bool has_crc32() { return find_cpu_features("").has("crc32"); }
#endif

#if defined(HS_TARGET_CRC32)
HS_TARGET_CRC32 uint32_t crc32c_instructions(const uint8_t* at, size_t size, uint32_t before) {
  uint64_t crc = ~before;
  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    crc = HS_CRC32_U64(crc, word);
  }
  auto tail = static_cast<uint32_t>(crc);
  for (; size > 0; ++at, --size) tail = HS_CRC32_U8(tail, *at);
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

uint32_t crc32c(const void* bytes, size_t size, uint32_t before) {
#if defined(HS_TARGET_CRC32)
  static const bool has_instructions = has_crc32();
  if (has_instructions) return crc32c_instructions(static_cast<const uint8_t*>(bytes), size, before);
#endif
  return crc32c_table(bytes, size, before);
}

}  // namespace hs
