#include "kernels/cpu_features.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace hs {
namespace {

#if defined(__x86_64__)

bool is_amx_switched_off() {
  const char* value = std::getenv("HALFSTEP_NO_AMX");
  return value && *value && std::strcmp(value, "0") != 0;
}

// The 8 KiB of tile registers belong to a process only after it has asked for them; without that, the first tile
// instruction is an illegal one. Threads that start later inherit the permission.
bool request_tiles() {
#if defined(__linux__)
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  CpuFeatures features;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  // The builtin also asks whether the system saves the wide registers.
  features.f16c = (c >> 29 & 1) && __builtin_cpu_supports("avx");
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!features.avx512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  const bool has_amx = (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16, AMX-TILE
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) features.avx512_bf16 = a >> 5 & 1;
  features.amx_bf16 = has_amx && !is_amx_switched_off() && request_tiles();
  return features;
}

#else

CpuFeatures detect() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace hs
