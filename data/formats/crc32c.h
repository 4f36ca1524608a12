// CRC32C (Castagnoli, polynomial 0x1EDC6F41 reflected, as in RFC 3720 and SSE 4.2): the checksum of record files and of
// TFRecord. Any error of up to 32 neighbouring bits is found, and a processor with SSE 4.2 computes it at about the
// speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hs {

// Of `size` bytes that follow others: `before` is the CRC of those. crc32c("123456789", 9) == 0xe3069283.
uint32_t crc32c(const void* bytes, size_t size, uint32_t before = 0);

// The two ways to compute it: crc32c() takes the hardware's if the processor has it.
bool crc32c_has_hardware();
uint32_t crc32c_table(const void* bytes, size_t size, uint32_t before = 0);
uint32_t crc32c_hardware(const void* bytes, size_t size, uint32_t before = 0);  // REQUIRES: crc32c_has_hardware()

}  // namespace hs
