#include "bench/judge/isolation.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "engine/check.h"

namespace hs::bench::judge {
namespace {

using Filter = std::vector<sock_filter>;

sock_filter load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter end(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
sock_filter skip_unless_equal(uint32_t value, uint8_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
}

constexpr size_t number_at = offsetof(seccomp_data, nr);
constexpr size_t argument_at(size_t i) { return offsetof(seccomp_data, args) + 8 * i; }  // its lower half

// Allows the call if argument `i`, of which only the bits of `mask` are looked at, is `value`.
void allow_if(Filter& filter, uint32_t call, size_t i, uint32_t mask, uint32_t value) {
  filter.insert(filter.end(),
                {load(number_at), skip_unless_equal(call, 4), load(argument_at(i)),
                 BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask), skip_unless_equal(value, 1), end(SECCOMP_RET_ALLOW)});
  // Falls through to the calls that follow, and in the end to the refusal.
}

// What memory, threads, clocks and loading a library need. Not a handler of signals, which could hide a fault.
constexpr std::initializer_list<uint32_t> allowed[] = {
    {__NR_read, __NR_write, __NR_close, __NR_fstat, __NR_lseek, __NR_pread64, __NR_poll},
    {__NR_newfstatat, __NR_readlink, __NR_readlinkat, __NR_access, __NR_faccessat, __NR_getdents64},
    {__NR_brk, __NR_mmap, __NR_munmap, __NR_mprotect, __NR_mremap, __NR_madvise},
    {__NR_futex, __NR_sched_yield, __NR_sched_getaffinity, __NR_set_robust_list, __NR_rseq, __NR_membarrier},
    {__NR_clock_gettime, __NR_clock_getres, __NR_time, __NR_nanosleep, __NR_clock_nanosleep, __NR_times},
    {__NR_exit, __NR_exit_group, __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_restart_syscall},
    {__NR_getpid, __NR_gettid, __NR_getppid, __NR_getuid, __NR_getcpu, __NR_uname, __NR_sysinfo, __NR_getrusage,
     __NR_getrandom}};

Filter make_filter(bool catches_faults) {
  Filter filter = {load(offsetof(seccomp_data, arch)), skip_unless_equal(AUDIT_ARCH_X86_64, 1),
                   BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), end(SECCOMP_RET_KILL_PROCESS), load(number_at)};
  for (const auto& calls : allowed) {
    for (const uint32_t call : calls) filter.insert(filter.end(), {skip_unless_equal(call, 1), end(SECCOMP_RET_ALLOW)});
  }
  // The C library then uses clone(), whose flags can be looked at; OpenBLAS does without mbind().
  for (const uint32_t call : {__NR_clone3, __NR_mbind}) {
    filter.insert(filter.end(), {skip_unless_equal(call, 1), end(SECCOMP_RET_ERRNO | ENOSYS)});
  }
  constexpr uint32_t thread = 0x00010000;                // CLONE_THREAD
  constexpr uint32_t writes = 3 | 0100 | 01000 | 02000;  // O_ACCMODE, O_CREAT, O_TRUNC, O_APPEND
  allow_if(filter, __NR_clone, 0, thread, thread);
  allow_if(filter, __NR_openat, 2, writes, 0);
  allow_if(filter, __NR_open, 1, writes, 0);
  allow_if(filter, __NR_tgkill, 0, ~0u, static_cast<uint32_t>(::getpid()));  // abort()
  allow_if(filter, __NR_prlimit64, 2, ~0u, 0);                               // it asks, and sets nothing
  for (const uint32_t signal : {SIGSEGV, SIGILL}) {
    if (catches_faults) allow_if(filter, __NR_rt_sigaction, 0, ~0u, signal);
  }
  filter.push_back(end(SECCOMP_RET_TRAP));
  return filter;
}

// The line that the judge reads. It is all that the process still does.
void on_refused(int, siginfo_t* info, void*) {
  std::array<char, 40> line{};
  const int length = std::snprintf(line.data(), line.size(), "system call %d\n", info->si_syscall);
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, line.data(), static_cast<size_t>(length));
  ::_exit(1);
}

uint64_t mapped_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void confine(uint64_t memory, bool catches_faults) {
  const auto set = [](int resource, rlim_t value) {
    const rlimit limit{value, value};
    ::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  };
  set(RLIMIT_AS, mapped_bytes() + memory);
  set(RLIMIT_DATA, memory);  // of what is mapped, too, the device's memory for example
  set(RLIMIT_CORE, 0);
  set(RLIMIT_FSIZE, most_printed);
  struct sigaction action {};
  action.sa_sigaction = on_refused;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSYS, &action, nullptr);
  ::prctl(PR_SET_DUMPABLE, 0);  // nobody else reads or writes its memory
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  ::syscall(SYS_capset, &header, none.data());
  Filter filter = make_filter(catches_faults);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    fail(
        ExitCode::device,
        "this system has no filters of system calls (seccomp: {}), without which a plug-in could do anything; judge it "
        "on another one",
        std::strerror(errno));
  }
}

}  // namespace hs::bench::judge
