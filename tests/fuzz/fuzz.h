// What the fuzz targets share.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/error.h"
#include "engine/non_copyable.h"

namespace hs::fuzz {

using Bytes = std::vector<uint8_t>;

inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: broken: %s\n", what);
  std::abort();
}

// What `read` returns, or nothing if it refused: then with the right kind of error, in one line.
template <class Read>
auto accepted(const Read& read, ExitCode refusal = ExitCode::bad_input) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error& error) {
    expect(error.code() == refusal, "a refusal has its exit code");
    expect(std::string(error.what()).find('\n') == std::string::npos, "a message is one line");
    return std::nullopt;
  }
}

// A folder in memory, for readers of files.
class Scratch : NonCopyable {
 public:
  Scratch() {
    std::string pattern = "/dev/shm/halfstep-fuzz-XXXXXX";
    expect(mkdtemp(pattern.data()) != nullptr, "mkdtemp");
    folder_ = pattern;
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }

  std::filesystem::path operator/(const char* name) const { return folder_ / name; }

  // A new file each time: one that is still mapped must not change.
  std::filesystem::path write(const char* name, std::span<const uint8_t> bytes) const {
    const std::filesystem::path path = folder_ / name;
    ::unlink(path.c_str());
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    expect(file >= 0 && ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "write");
    ::close(file);
    return path;
  }

 private:
  std::filesystem::path folder_;
};

// The one of this process.
inline const Scratch& scratch() {
  static const Scratch folder;
  return folder;
}

}  // namespace hs::fuzz
