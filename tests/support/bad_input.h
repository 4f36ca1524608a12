// For tests that feed damaged files to a reader: what it said, and the largest block of memory that it asked for.
// Replaces operator new, so exactly one file of a program includes it.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "engine/error.h"

namespace hs::test {
inline std::atomic<size_t> largest_allocation{0};
}

// Not inlined: GCC would see free() meet operator new and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  size_t largest = hs::test::largest_allocation;
  while (bytes > largest && !hs::test::largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);  // std::stable_sort's buffer
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hs::test {

using Bytes = std::vector<uint8_t>;
inline constexpr size_t mib = size_t{1} << 20;

struct Outcome {
  ExitCode code = ExitCode::ok;
  std::string message;
  size_t largest = 0;  // allocation
};

inline Outcome outcome_of(const std::function<void()>& action) {
  Outcome outcome;
  largest_allocation = 0;
  try {
    action();
  } catch (const Error& error) {
    outcome = {error.code(), error.what(), 0};
  }
  outcome.largest = largest_allocation;
  return outcome;
}

// One line that starts with the name of the file and has `part` in it, and no memory beyond `most` was taken.
inline void check_refused(const Outcome& outcome, ExitCode code, const std::string& name, const std::string& part,
                          size_t most = mib) {
  CAPTURE(part);
  CHECK(outcome.code == code);
  CHECK_MESSAGE(outcome.message.find(part) != std::string::npos, outcome.message);
  CHECK_MESSAGE(outcome.message.starts_with(name), outcome.message);
  CHECK_MESSAGE(outcome.message.find('\n') == std::string::npos, outcome.message);
  CHECK(outcome.largest <= most);
}

inline Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path& path, const Bytes& bytes) {
  std::filesystem::create_directories(path.parent_path());
  // A new file: ext4 waits for the disk when one is cut to nothing and written again.
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

}  // namespace hs::test
