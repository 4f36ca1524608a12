// The shadow of shared memory. Two accesses to the same bytes by different threads, one of them a write, need something
// between them: a barrier of the block, or a __syncwarp that both lanes take part in (block.h: Warp). Otherwise it is a
// race, whichever of them happened to run first here.
#include "emulator/shared.h"

#include <bit>
#include <cstdlib>
#include <cstring>

#include "block.h"
#include "counters.h"
#include "internal.h"

namespace hs::emulator {
namespace {

enum : uint8_t { unwritten, plain, atomic, pending };
enum : int8_t { nobody, one_warp, several_warps };
constexpr int16_t several = -2;  // writers, all of them atomic

const char* verb(Access kind) {
  return kind == Access::read     ? "reads"
         : kind == Access::atomic ? "updates"
         : kind == Access::write  ? "writes"
                                  : "copies to";
}

constexpr size_t dynamic_limit = 227 << 10;
alignas(1024) std::byte dynamic_bytes[dynamic_limit];
SharedBuffer dynamic_buffer{dynamic_bytes, dynamic_limit, 2, 4};

std::string name_of(const SharedBuffer& buffer) {
  return &buffer == &dynamic_buffer ? "dynamic shared memory" : symbol_name(buffer.data);
}

// One access by one thread, against what each of its cells has seen. Every shared access of a kernel comes through
// here: half of the time of an emulated test.
struct Check {
  SharedBuffer& buffer;
  size_t offset;
  Access kind;
  const Thread& self;
  const uint32_t* known;  // Warp::known of this thread

  std::string where() const { return format("%s[%zu]", name_of(buffer).c_str(), offset / buffer.element); }

  bool happened_before(int thread, uint32_t epoch, uint32_t time) const {
    if (epoch != block.epoch || thread == self.number) return true;
    if (thread == several || thread / 32 != self.warp) return false;
    return known[thread % 32] > time;
  }
  // Of the cell's readers, all of one warp and of this epoch, a lane of whose read this thread has not heard; -1: none.
  int unheard_reader(const SharedCell& cell) const {
    if (cell.reader / 32 != self.warp) return std::countr_zero(cell.read_lanes);
    for (uint32_t left = cell.read_lanes & ~(1u << self.lane); left; left &= left - 1) {
      const int lane = std::countr_zero(left);
      if (known[lane] <= cell.read_time) return lane;
    }
    return -1;
  }
  void race(int other, const char* did) const {
    const std::string who = other == several ? "several threads" : format("thread %d", other);
    device_fault(cudaErrorLaunchFailure, "race on %s: thread %d %s what %s %s, without a barrier between them",
                 where().c_str(), self.number, verb(kind), who.c_str(), did);
  }

  void against_writer(const SharedCell& cell) const {
    if (cell.state == unwritten || cell.write_epoch < block.first_epoch) return;
    if (kind == Access::atomic && cell.state == atomic) return;
    if (!happened_before(cell.writer, cell.write_epoch, cell.write_time)) race(cell.writer, "wrote");
  }
  void against_readers(const SharedCell& cell) const {
    if (cell.readers == nobody || cell.read_epoch != block.epoch) return;
    if (cell.readers == several_warps) {  // at least one of the two is of another warp, and so unordered
      race(cell.reader / 32 != self.warp ? cell.reader : cell.other_reader, "reads");
      return;
    }
    const int lane = unheard_reader(cell);
    if (lane >= 0) race(cell.reader / 32 * 32 + lane, "reads");
  }

  void read(SharedCell& cell, uint32_t time) const {
    against_writer(cell);
    const uint32_t bit = 1u << self.lane;
    if (cell.readers != nobody && cell.read_epoch == block.epoch) {
      if (cell.readers == several_warps || cell.reader / 32 != self.warp) {
        if (cell.readers == one_warp) cell.other_reader = static_cast<int16_t>(self.number);
        cell.readers = several_warps;
        return;
      }
      if (unheard_reader(cell) >= 0) {
        cell.read_lanes |= bit;
        cell.read_time = std::min(cell.read_time, time);
        return;
      }
      // This lane has heard of all earlier ones: who is ordered after it is ordered after them.
    }
    cell.readers = one_warp;
    cell.reader = static_cast<int16_t>(self.number);
    cell.read_epoch = block.epoch;
    cell.read_time = time;
    cell.read_lanes = bit;
  }

  void write(SharedCell& cell, uint32_t time) const {
    against_writer(cell);
    against_readers(cell);
    const bool joins = kind == Access::atomic && cell.state == atomic && cell.write_epoch == block.epoch &&
                       (cell.writer == several || cell.writer / 32 != self.warp);
    cell.writer = joins ? several : static_cast<int16_t>(self.number);
    cell.write_epoch = block.epoch;
    cell.write_time = time;
    cell.readers = nobody;
    cell.state = kind == Access::atomic ? atomic : kind == Access::begin_async ? pending : plain;
  }
};

struct Copy {
  SharedBuffer* buffer;
  ptrdiff_t offset;
  const void* from;
  int bytes, valid_bytes;
  int group;  // number of the thread's commit, -1: not committed
};
struct Copies {               // of one thread
  std::vector<Copy> started;  // and not waited for, in order of issue
  int commits = 0;
};
auto& copies = *new std::vector<Copies>;  // by thread of the running block
uint32_t copies_of_block = 0;             // its first_epoch

Copies& copies_of_thread() {
  if (copies_of_block != block.first_epoch) {
    copies_of_block = block.first_epoch;
    copies.resize(block.threads.size());
    for (auto& [started, commits] : copies) started.clear(), commits = 0;
  }
  return copies[static_cast<size_t>(running->number)];
}

}  // namespace

bool SharedBuffer::access(ptrdiff_t offset, size_t count, Access kind, int as_lane) {
  if (!running) {
    report(cudaErrorLaunchFailure, "shared memory is used outside of a kernel");
    return false;
  }
  const Thread& self = as_lane < 0 ? *running : block.threads[static_cast<size_t>(running->warp * 32 + as_lane)];
  const size_t size = this == &dynamic_buffer ? block.dynamic_bytes : bytes;
  if (this == &dynamic_buffer) element = count;
  const bool inside = offset >= 0 && static_cast<size_t>(offset) + count <= size;
  const bool aligned = count <= 1 || (count & (count - 1)) != 0 || static_cast<size_t>(offset) % count == 0;
  // One finding per launch: a race is found at each of its accesses, and to word them all would take minutes.
  if (launch_now.has_fault) return inside && aligned;
  if (!inside) {
    const ptrdiff_t index = offset / static_cast<ptrdiff_t>(element);
    device_fault(cudaErrorIllegalAddress, "%s: index %td is out of bounds, it has %zu elements", name_of(*this).c_str(),
                 index, size / element);
    return false;
  }
  if (counting && kind < Access::begin_async) {  // for another lane: ldmatrix, where each lane takes part each time
    count_shared(*this, offset, count, self.lane, as_lane < 0 ? __builtin_return_address(0) : nullptr,
                 shared_instruction(count, kind != Access::read));
  }
  const size_t first = static_cast<size_t>(offset);
  const uint32_t* const known = block.warps[static_cast<size_t>(self.warp)].known[self.lane];
  Check check{*this, first, kind, self, known};
  if (!aligned) {
    device_fault(cudaErrorMisalignedAddress, "%s: an access of %zu bytes at byte %zu", check.where().c_str(), count,
                 first);
    return false;
  }
  if (!cells) cells = static_cast<SharedCell*>(std::calloc((bytes + granule - 1) / granule, sizeof(SharedCell)));
  const uint32_t time = known[self.lane];
  SharedCell* next = cells + first / granule;
  for (; check.offset < first + count; check.offset += granule) {
    SharedCell& cell = *next++;
    const bool written = cell.state != unwritten && cell.write_epoch >= block.first_epoch;
    if (kind == Access::end_async) {
      cell.state = plain;  // visible to this thread now, to others after the next barrier
      cell.write_epoch = block.epoch;
      cell.write_time = time;
      continue;
    }
    if (written && cell.state == pending) {
      device_fault(cudaErrorLaunchFailure,
                   "thread %d %s %s, to which thread %d has started a cp.async that may still be under way (its thread "
                   "waits, then a barrier, then the read; or a barrier is missing before that copy was started)",
                   self.number, verb(kind), check.where().c_str(), cell.writer);
    } else if (!written && (kind == Access::read || kind == Access::atomic)) {
      device_fault(cudaErrorLaunchFailure, "thread %d %s %s, which no thread of this block has written yet",
                   self.number, verb(kind), check.where().c_str());
    }
    kind == Access::read ? check.read(cell, time) : check.write(cell, time);
  }
  return true;
}

SharedBuffer& dynamic_shared_buffer() { return dynamic_buffer; }

void async_copy(SharedBuffer& buffer, ptrdiff_t offset, const void* from, int bytes, int valid_bytes) {
  if (reinterpret_cast<uintptr_t>(from) % static_cast<uintptr_t>(bytes) != 0) {
    device_fault(cudaErrorMisalignedAddress, "cp.async of %d bytes from %p", bytes, from);
    return;
  }
  if (valid_bytes > 0) {
    check_vector(from, static_cast<size_t>(valid_bytes), false);
    (void)*static_cast<const volatile char*>(from);  // reported here, not at the wait
  }
  if (!buffer.access(offset, static_cast<size_t>(bytes), Access::begin_async)) return;
  count_global(from, static_cast<size_t>(valid_bytes), false, __builtin_return_address(0), true);
  count_shared(buffer, offset, static_cast<size_t>(bytes), lane(), __builtin_return_address(0), cp_async);
  copies_of_thread().started.push_back({&buffer, offset, from, bytes, valid_bytes, -1});
}

void async_commit() {
  auto& [started, commits] = copies_of_thread();
  for (Copy& copy : started) {
    if (copy.group < 0) copy.group = commits;
  }
  ++commits;
}

void async_wait(int groups_left) {
  auto& [started, commits] = copies_of_thread();
  std::erase_if(started, [done = commits - groups_left](const Copy& copy) {
    if (copy.group < 0 || copy.group >= done) return false;
    std::byte* to = copy.buffer->at(copy.offset);
    if (copy.valid_bytes > 0) memcpy(to, copy.from, static_cast<size_t>(copy.valid_bytes));
    memset(to + copy.valid_bytes, 0, static_cast<size_t>(copy.bytes - copy.valid_bytes));
    copy.buffer->access(copy.offset, static_cast<size_t>(copy.bytes), Access::end_async);
    return true;
  });
}

void check_pending_copies(int thread) {
  if (copies_of_block != block.first_epoch || copies[static_cast<size_t>(thread)].started.empty()) return;
  device_fault(cudaErrorLaunchFailure, "thread %d ends with a cp.async that it has not waited for", thread);
}

}  // namespace hs::emulator
