// Shared memory with a shadow: for every few bytes, who wrote and who read them since the last barrier.
// source/shared.cpp has the rules; include/kernels/cuda/shared.cuh the types that kernels use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hs::emulator {

enum class Access { read, write, atomic, begin_async, end_async };

struct SharedCell {
  uint32_t write_epoch, write_time, read_epoch, read_time, read_lanes;
  int16_t writer, reader, other_reader;  // threads of the block
  int8_t readers;                        // none, lanes of one warp, or several warps
  uint8_t state;                         // unwritten, plain, atomic, asynchronous copy under way
};

// One shared array, or the dynamic shared memory of the block.
struct SharedBuffer {
  void* data;
  size_t bytes;
  size_t granule;  // bytes per cell
  size_t element;  // bytes per element, for reports
  SharedCell* cells = nullptr;

  std::byte* at(ptrdiff_t offset) const { return static_cast<std::byte*>(data) + offset; }

  // Checks and records one access of the running thread, or of another lane of its warp. False: out of bounds, do not
  // touch the memory.
  bool access(ptrdiff_t offset, size_t count, Access kind, int as_lane = -1);
};

SharedBuffer& dynamic_shared_buffer();

// cp.async: the copy happens when the thread waits for it.
void async_copy(SharedBuffer& buffer, ptrdiff_t offset, const void* from, int bytes, int valid_bytes);
void async_commit();
void async_wait(int groups_left);

}  // namespace hs::emulator
