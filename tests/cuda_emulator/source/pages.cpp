// Weak memory between the blocks of a launch: README.md, "Order of global memory", has the rules. While a launch runs,
// open pages are read-only. The first write to a page keeps a copy of it, which is what the others see; at the end of
// the block the page is that copy again, and the differences wait.
#include <unistd.h>

#include <cstring>
#include <map>

#include "emulator/device.h"
#include "internal.h"
#include "memory.h"

namespace hs::emulator {
namespace {

const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
bool active = false;
auto& published = *new std::map<char*, unsigned char*>;  // pages that the running block has written
auto& spare = *new std::vector<unsigned char*>;          // memory for copies of pages

struct Change {
  char* at;
  size_t bytes;
  size_t place;  // in `changed`
};
auto& changes = *new std::vector<Change>;  // of blocks that have ended
auto& changed = *new std::vector<unsigned char>;

char* page_of(const void* address) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(address) / page * page);
}

// The running block's pages become what the others see; keep(at, bytes) gets each stretch that differs.
template <class Keep>
void give_up_pages(const Keep& keep) {
  for (auto& [at, others] : published) {
    for (size_t i = first_difference(at, others, 0, page); i < page; i = first_difference(at, others, i, page)) {
      size_t end = i + 1;
      while (end < page && first_difference(at, others, end, end + 1) == end) ++end;
      keep(at + i, end - i);
      i = end;
    }
    copy_raw(at, others, page);
    set_writable({at, page}, false);
    spare.push_back(others);
  }
  published.clear();
}

}  // namespace

void begin_private_pages() {
  active = options().private_pages;
  if (!active) return;
  for (const Pages& pages : open_pages()) set_writable(pages, false);
}

void pages_opened(Pages pages) {
  if (active) set_writable(pages, false);
}

bool make_private(const void* address) {
  if (!active) return false;
  char* at = page_of(address);
  if (!open_pages_with(address).begin || published.count(at)) return false;
  if (spare.empty()) spare.push_back(new unsigned char[page]);
  copy_raw(spare.back(), at, page);
  published[at] = spare.back();
  spare.pop_back();
  set_writable({at, page}, true);
  return true;
}

void end_block() {
  if (!active) return;
  give_up_pages([](char* at, size_t bytes) {
    changes.push_back({at, bytes, changed.size()});
    changed.resize(changed.size() + bytes);
    copy_raw(changed.data() + changes.back().place, at, bytes);
  });
}

void end_private_pages() {
  if (!active) return;
  end_block();
  active = false;
  for (const Pages& pages : open_pages()) set_writable(pages, true);
  for (const Change& change : changes) copy_raw(change.at, changed.data() + change.place, change.bytes);
  changes.clear();
  changed.clear();
}

void fence() {
  for (auto& [at, others] : published) copy_raw(others, at, page);
}

void publish(const void* address, size_t bytes) {
  if (waits_for_launches_before()) {  // a __device__ variable, which is not in pages that can be closed
    device_fault(cudaErrorLaunchFailure, "changes memory by an atomic, before it waits for the launch in front");
  }
  auto found = active ? published.find(page_of(address)) : published.end();
  if (found == published.end()) return;
  copy_raw(found->second + (static_cast<const char*>(address) - found->first), address, bytes);
}

}  // namespace hs::emulator
