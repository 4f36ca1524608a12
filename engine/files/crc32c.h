// CRC32C (Castagnoli, polynomial 0x1EDC6F41 reflected, as in RFC 3720 and SSE 4.2): the checksum of record files and of
// TFRecord. It finds every error of up to 32 neighbouring bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hs {

// The CRC of `size` bytes that follow others whose CRC is `before`. crc32c("123456789", 9) == 0xe3069283.
uint32_t crc32c(const void* bytes, size_t size, uint32_t before = 0);

// The same without the processor's instruction; crc32c() calls it if the processor has none.
uint32_t crc32c_table(const void* bytes, size_t size, uint32_t before = 0);

}  // namespace hs
