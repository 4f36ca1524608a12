// Reading a page of a map that the file no longer has raises SIGBUS. Asking fstat() before every read would leave a gap
// in which the file can shrink, and pread() instead of the map costs a system call for each small image (several times
// the copy itself). So the signal is caught: a thread that is about to read says which bytes, and the handler jumps
// back to it if the fault is there. Only memcpy and a checksum run in that state: nothing that the jump could leave
// half done. Every other SIGBUS goes where it went before.
#include "data/io/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>

#include "data/formats/crc32c.h"
#include "engine/check.h"

namespace hs {
namespace {

struct Guard {
  const uint8_t* begin;
  const uint8_t* end;
  sigjmp_buf back;
};
thread_local Guard* active_guard = nullptr;
struct sigaction previous_action;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const Guard* guard = active_guard;
  const auto* address = static_cast<const uint8_t*>(info->si_addr);
  const bool from_memory = info->si_code > 0;  // and not sent by somebody
  if (guard != nullptr && from_memory && address >= guard->begin && address < guard->end) {
    // The jump leaves the handler for good: the signals that it blocked must not stay blocked. (sigsetjmp could note
    // them, but with a system call for each read.)
    pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(active_guard->back, 1);
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) return previous_action.sa_sigaction(signal, info, context);
  if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    return previous_action.sa_handler(signal);
  }
  // Ends the program as if nobody had listened, as soon as the handler returns and the signal is let through.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void catch_bus_errors() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  });
}

// False if the bytes could not be read.
template <class Action>
bool guarded(const uint8_t* begin, size_t size, const Action& action) {
  Guard guard;
  guard.begin = begin;
  guard.end = begin + size;
  if (sigsetjmp(guard.back, 0) != 0) {
    active_guard = nullptr;
    return false;
  }
  active_guard = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  action(begin);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  active_guard = nullptr;
  return true;
}

// The most that Linux maps when one page is touched: a large folio, aligned in the file.
constexpr uint64_t piece_bytes = 2 << 20;

uint64_t default_resident_limit() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 4;
}

constexpr size_t prefetched_bytes = 1024;

// A few milliseconds long, and read in a few nanoseconds.
int64_t coarse_ticks() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, uint64_t resident_limit)
    : file_(path), resident_limit_(resident_limit == 0 ? default_resident_limit() : resident_limit) {
  catch_bus_errors();
  struct stat status;
  if (::fstat(file_.descriptor(), &status) != 0) fail(ExitCode::io, "{}: {}", name(), std::strerror(errno));
  modified_ = status.st_mtim;
  if (size() == 0) return;
  if (size() > resident_limit_) {
    touched_ = std::make_unique<std::atomic<uint8_t>[]>((size() + piece_bytes - 1) / piece_bytes);
  }
  void* address = ::mmap(nullptr, size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (address == MAP_FAILED) fail(ExitCode::io, "{}: cannot be mapped: {}", name(), std::strerror(errno));
  data_ = static_cast<const uint8_t*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size());
}

void MappedFile::check_unchanged() const {
  const int64_t now = coarse_ticks();
  if (looked_at_.load(std::memory_order_relaxed) == now) return;
  struct stat status;
  if (::fstat(file_.descriptor(), &status) != 0) fail(ExitCode::io, "{}: {}", name(), std::strerror(errno));
  const auto found = static_cast<uint64_t>(status.st_size);
  if (found != size()) {
    fail(ExitCode::bad_input, "{}: had {} bytes when it was opened and has {} now; do not change a file in use", name(),
         size(), found);
  }
  if (status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec) {
    fail(ExitCode::bad_input, "{}: was written to since it was opened; do not change a file in use", name());
  }
  looked_at_.store(now, std::memory_order_relaxed);
}

void MappedFile::count_touched(uint64_t offset, size_t bytes) const {
  uint64_t more = 0;
  for (uint64_t piece = offset / piece_bytes; piece * piece_bytes < offset + bytes; ++piece) {
    if (touched_[piece].load(std::memory_order_relaxed) != 0) continue;
    if (touched_[piece].exchange(1, std::memory_order_relaxed) == 0) more += piece_bytes;
  }
  if (more == 0 || touched_bytes_.fetch_add(more) + more <= resident_limit_) return;
  // Two threads may do this at a time, or touch a piece in between: it is then counted once more or once less.
  touched_bytes_ = 0;
  for (uint64_t piece = 0; piece * piece_bytes < size(); ++piece) touched_[piece].store(0, std::memory_order_relaxed);
  ::madvise(const_cast<uint8_t*>(data_), size(), MADV_DONTNEED);
}

template <class Action>
void MappedFile::with_bytes(uint64_t offset, size_t bytes, const Action& action) const {
  check(offset <= size() && bytes <= size() - offset, "{}: bytes {} to {} of {}", name(), offset, offset + bytes,
        size());
  if (bytes == 0) return;
  // They are on their way from memory while we look. What is no longer there, a prefetch ignores.
  for (size_t at = 0; at < std::min(bytes, prefetched_bytes); at += 64) __builtin_prefetch(data_ + offset + at);
  check_unchanged();
  if (touched_) count_touched(offset, bytes);
  if (guarded(data_ + offset, bytes, action)) return;
  looked_at_ = 0;
  check_unchanged();  // says what happened, if the size did change
  fail(ExitCode::bad_input, "{}: bytes {} to {} cannot be read; the disk is damaged, or the file was cut and restored",
       name(), offset, offset + bytes);
}

void MappedFile::copy(uint64_t offset, size_t bytes, uint8_t* to) const {
  with_bytes(offset, bytes, [to, bytes](const uint8_t* from) { std::memcpy(to, from, bytes); });
}

uint32_t MappedFile::checksum(uint64_t offset, size_t bytes) const {
  uint32_t sum = 0;
  with_bytes(offset, bytes, [&sum, bytes](const uint8_t* from) { sum = crc32c(from, bytes); });
  return sum;
}

}  // namespace hs
