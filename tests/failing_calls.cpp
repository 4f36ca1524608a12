// For LD_PRELOAD: lets calls of the operating system fail in a program that knows nothing of it. HALFSTEP_FAULT is
// "CALL N HOW": the N-th call fails (HOW is fails), or that one and all later ones take half a second (late) or never
// return (blocks). Then the file that HALFSTEP_FAULT_MARK names appears. tests/bench/fault_table.cpp uses it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>

namespace {

struct Plan {
  std::string call, how;
  int at = 0;
  Plan() {
    if (const char* text = std::getenv("HALFSTEP_FAULT")) std::istringstream(text) >> call >> at >> how;
  }
};

// Whether this call fails.
bool fails(const char* name) {
  static const Plan plan;
  static std::atomic<int> made = 0;
  if (plan.call != name) return false;
  const int number = ++made;
  if (number < plan.at || (plan.how == "fails" && number != plan.at)) return false;
  if (const char* mark = std::getenv("HALFSTEP_FAULT_MARK")) {
    static_cast<void>(::open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
  }
  while (plan.how == "blocks") ::pause();
  if (plan.how == "late") ::usleep(500'000);
  errno = EIO;
  return plan.how == "fails";
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  static const auto call = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return fails("pread") ? -1 : call(file, bytes, size, offset);
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static const auto call = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  // The first half has been written when a disk is full.
  if (fails("pwrite")) return call(file, bytes, size / 2, offset) < 0 ? -1 : (errno = ENOSPC, -1);
  return call(file, bytes, size, offset);
}
int fsync(int file) {
  static const auto call = next<int (*)(int)>("fsync");
  return fails("fsync") ? -1 : call(file);
}
int close(int file) {
  static const auto call = next<int (*)(int)>("close");
  const bool failed = fails("close");
  const int result = call(file);
  return failed ? (errno = EIO, -1) : result;
}
int rename(const char* from, const char* to) noexcept {
  static const auto call = next<int (*)(const char*, const char*)>("rename");
  return fails("rename") ? -1 : call(from, to);
}
}
