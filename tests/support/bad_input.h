// For tests that feed damaged files to a reader: bytes and files, the reader's error, and the largest block of memory
// that it requested. Replaces operator new, so exactly one file of a program includes it.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "engine/error.h"
#include "engine/files/endian.h"
#include "tests/support/temporary_folder.h"

namespace hs::test {
inline std::atomic<size_t> largest_allocation{0};
inline thread_local bool memory_has_ended = false;  // true: no allocation of this thread succeeds
}  // namespace hs::test

#ifndef __SANITIZE_THREAD__  // whose own operator new cannot be replaced: there every allocation counts as none
// Not inlined: GCC would see free() paired with operator new and warn.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {  // std::stable_sort's buffer
  return hs::test::memory_has_ended ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  size_t largest = hs::test::largest_allocation;
  while (bytes > largest && !hs::test::largest_allocation.compare_exchange_weak(largest, bytes)) {
  }
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

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

// The same with files limited to `bytes` bytes, as on a full disk: each write beyond fails.
inline Outcome outcome_on_full_disk(uint64_t bytes, const std::function<void()>& action) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {bytes, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Outcome outcome = outcome_of(action);
  setrlimit(RLIMIT_FSIZE, &before);
  return outcome;
}

// The error must be one line that starts with the file's name and contains `part`; no allocation may exceed `most`.
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
  // A new file: ext4 waits for the disk when a file is truncated and rewritten.
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

inline Bytes operator+(Bytes left, const Bytes& right) {
  for (const uint8_t byte : right) left.push_back(byte);  // not insert(): GCC 12 warns of it for short vectors
  return left;
}
inline Bytes first_bytes(const Bytes& bytes, size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}
inline Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
inline Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}
inline Bytes big_endian(std::initializer_list<uint32_t> words) {
  Bytes bytes(4 * words.size());
  size_t at = 0;
  for (const uint32_t word : words) put_big_endian(&bytes[4 * at++], word);
  return bytes;
}

// By zlib, and as a gzip file, which is zlib's number of bits and 16 more.
inline Bytes deflated(const Bytes& plain, int bits = 15) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<uint8_t*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}
inline Bytes gzip(const Bytes& plain) { return deflated(plain, 15 + 16); }

// One file that a test damages in many ways and passes to a reader.
class DamagedFile {
 public:
  using Reader = std::function<void(const std::filesystem::path&)>;
  using Part = std::function<std::string(size_t)>;
  explicit DamagedFile(Reader reader, const std::string& name = "file", ExitCode code = ExitCode::bad_input)
      : path(folder / name), reader_(std::move(reader)), code_(code) {}

  Outcome read(const Bytes& bytes) const {
    write_bytes(path, bytes);
    return outcome_of([&] { reader_(path); });
  }
  void check_refused(const Bytes& bytes, const std::string& part, size_t most = mib) const {
    test::check_refused(read(bytes), code_, path.string() + ": ", part, most);
  }
  // Truncates the file at every byte, and appends a byte. part(size): text in the message for a file of this size.
  void check_sizes(const Bytes& good, const Part& part) const {
    REQUIRE(read(good).code == ExitCode::ok);
    for (size_t size = 0; size < good.size(); ++size) check_refused(first_bytes(good, size), part(size));
    check_refused(good + Bytes{0}, part(good.size() + 1));
  }
  // Flips one bit at a time in the first `bytes` bytes: every bit, or one bit per byte if there are more than 1,000.
  // part(at): text in the message for this byte. `check`: of a file that is accepted, as none is without it.
  void check_flips(const Bytes& good, size_t bytes, const Part& part,
                   const std::function<void(const Bytes& changed)>& check = {}) const {
    REQUIRE(read(good).code == ExitCode::ok);
    for (size_t at = 0; at < bytes; ++at) {
      for (size_t bit = 0; bit < 8; ++bit) {
        if (bytes > 1000 && bit != at % 8) continue;
        CAPTURE(at);
        CAPTURE(bit);
        Bytes changed = good;
        changed[at] ^= static_cast<uint8_t>(1 << bit);
        const Outcome outcome = read(changed);
        if (check && outcome.code == ExitCode::ok) {
          check(changed);
        } else {
          test::check_refused(outcome, code_, path.string() + ": ", part(at));
        }
      }
    }
  }

  const TemporaryFolder folder{fast_place()};
  const std::filesystem::path path;

 private:
  const Reader reader_;
  const ExitCode code_;
};

}  // namespace hs::test
