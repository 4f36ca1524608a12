// Whether the result of a launch depends on the order of its threads and blocks, which the device does not promise:
// device memory as it was before the launch, and as the launch has left it.
#include <cstring>
#include <map>

#include "internal.h"
#include "memory.h"

namespace hs::emulator {
namespace {

using Copies = std::map<char*, std::vector<unsigned char>>;  // of the pages that the launch has opened
auto& before = *new Copies;
auto& result = *new Copies;
bool active = false;

std::vector<unsigned char> copy_of(const char* begin, size_t bytes) {
  std::vector<unsigned char> copy(bytes);
  copy_raw(copy.data(), begin, bytes);
  return copy;
}

void restore(const Copies& copies) {
  for (const auto& [begin, bytes] : copies) copy_raw(begin, bytes.data(), bytes.size());
}

}  // namespace

// Volatile, or the compiler makes a call of memcpy() out of it, which AddressSanitizer checks.
__attribute__((no_sanitize("address", "undefined"))) void copy_raw(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<volatile unsigned char*>(to);
  auto* source = static_cast<const volatile unsigned char*>(from);
  const auto words_fit = [](const volatile void* p) { return reinterpret_cast<uintptr_t>(p) % 8 == 0; };
  size_t i = 0;
  if (words_fit(target) && words_fit(source)) {
    for (; i + 8 <= bytes; i += 8) {
      *reinterpret_cast<volatile uint64_t*>(target + i) = *reinterpret_cast<const volatile uint64_t*>(source + i);
    }
  }
  for (; i < bytes; ++i) target[i] = source[i];
}

__attribute__((no_sanitize("address", "undefined"))) size_t first_difference(const void* a, const void* b, size_t begin,
                                                                             size_t bytes) {
  auto* x = static_cast<const volatile unsigned char*>(a);
  auto* y = static_cast<const volatile unsigned char*>(b);
  size_t i = begin;
  for (; i % 8 != 0 && i < bytes; ++i) {
    if (x[i] != y[i]) return i;
  }
  for (; i + 8 <= bytes; i += 8) {
    if (*reinterpret_cast<const volatile uint64_t*>(x + i) != *reinterpret_cast<const volatile uint64_t*>(y + i)) break;
  }
  while (i < bytes && x[i] == y[i]) ++i;
  return i;
}

void begin_snapshot() {
  active = true;
  for (const Pages& pages : open_pages()) snapshot_opened(pages);
}

void snapshot_opened(Pages pages) {
  if (active && !before.count(pages.begin)) before[pages.begin] = copy_of(pages.begin, pages.bytes);
}

void keep_result() {
  for (const auto& [begin, bytes] : before) result[begin] = copy_of(begin, bytes.size());
}

void restore_snapshot() { restore(before); }

const char* find_difference() {
  for (const auto& [begin, bytes] : result) {
    const size_t at = first_difference(begin, bytes.data(), 0, bytes.size());
    if (at < bytes.size()) return begin + at;
  }
  return nullptr;
}

void end_snapshot() {
  restore(before);  // all, and of most of it the result
  restore(result);
  before.clear();
  result.clear();
  active = false;
}

}  // namespace hs::emulator
