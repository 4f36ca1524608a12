// What the checks of global memory need to know of it: which pages are open to the device work that runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hs::emulator {

struct Pages {
  char* begin = nullptr;  // of whole pages: an allocation and what is around it on its pages
  size_t bytes = 0;
};
std::vector<Pages> open_pages();
Pages open_pages_with(const void* address);  // empty if the address is on none
void set_writable(Pages pages, bool writable);

// The address as it would be on a device, whose allocations start at multiples of 256; 0 if it is not device memory.
uint64_t address_on_device(const void* address);

// Between the bytes of device memory that AddressSanitizer may not look at, too.
void copy_raw(void* to, const void* from, size_t bytes);
size_t first_difference(const void* a, const void* b, size_t begin, size_t bytes);  // `bytes` if there is none

// --- pages.cpp: what a block writes is seen by other blocks once it is published ---
void begin_private_pages();
void end_block();
void end_private_pages();
bool make_private(const void* address);  // after a write that was refused; false if that has another reason
void pages_opened(Pages pages);          // in the middle of a launch

// --- order.cpp: the same launch in another order ---
void begin_snapshot();
void snapshot_opened(Pages pages);
void keep_result();
void restore_snapshot();
const char* find_difference();  // from the result; null if there is none
void end_snapshot();            // memory holds the result again

}  // namespace hs::emulator
