#include "engine/cpu_features.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace hs {
namespace {

// The values of HALFSTEP_ISA: each instruction set includes those before it.
#if defined(__aarch64__)
enum class Level : uint8_t { neon, neon_bf16 };
constexpr std::array<std::string_view, 2> level_names = {"neon", "neon_bf16"};
#else
enum class Level : uint8_t { x86_64, avx2, avx512, avx512_bf16, amx };
constexpr std::array<std::string_view, 5> level_names = {"x86-64", "avx2", "avx512", "avx512_bf16", "amx"};
#endif

Level level_of(const std::string& cap) {
  if (cap.empty()) return static_cast<Level>(level_names.size() - 1);
  const auto* const found = std::ranges::find(level_names, cap);
  if (found == level_names.end()) {
    fail(ExitCode::usage, "HALFSTEP_ISA={}: expected {} or {}; unset it for no cap", cap,
         fmt::join(level_names.begin(), level_names.end() - 1, ", "), level_names.back());
  }
  return static_cast<Level>(found - level_names.begin());
}

#if defined(__x86_64__)

// A process must request the 8 KiB of tile registers; without that, its first tile instruction is illegal. Threads that
// start later inherit the permission.
bool request_tiles() {
#if defined(__linux__)
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

std::vector<CpuFeature> detect() {
  unsigned a = 0, b = 0, c = 0, c1 = 0, d7 = 0, a71 = 0, d = 0;
  __get_cpuid(1, &a, &b, &c1, &d);
  __get_cpuid_count(7, 0, &a, &b, &c, &d7);
  __get_cpuid_count(7, 1, &a71, &b, &c, &d);
  const auto bit = [](unsigned word, int place) { return (word >> place & 1) != 0; };
  // The builtin also checks that the operating system saves the wide registers, but does not know all names.
  const bool avx = __builtin_cpu_supports("avx"), avx512f = __builtin_cpu_supports("avx512f");
  return {{"sse4_2", __builtin_cpu_supports("sse4.2") != 0},
          {"avx", avx},
          {"avx2", __builtin_cpu_supports("avx2") != 0},
          {"fma", __builtin_cpu_supports("fma") != 0},
          {"f16c", avx && bit(c1, 29)},
          {"avx512f", avx512f},
          {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
          {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
          {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
          {"avx512_vnni", __builtin_cpu_supports("avx512vnni") != 0},
          {"avx512_bf16", avx512f && bit(a71, 5)},
          {"avx512_fp16", avx512f && bit(d7, 23)},
          {"amx_tile", bit(d7, 24)},
          {"amx_int8", bit(d7, 25)},
          {"amx_bf16", bit(d7, 22)}};
}

#else

std::vector<CpuFeature> detect() {
#if defined(__aarch64__) && defined(__linux__)
  const auto has = [](int which, unsigned long bit) { return (getauxval(which) & bit) != 0; };
  return {{"asimd", has(AT_HWCAP, HWCAP_ASIMD)}, {"asimdhp", has(AT_HWCAP, HWCAP_ASIMDHP)},
          {"crc32", has(AT_HWCAP, HWCAP_CRC32)}, {"sve", has(AT_HWCAP, HWCAP_SVE)},
          {"sve2", has(AT_HWCAP2, HWCAP2_SVE2)}, {"bf16", has(AT_HWCAP2, HWCAP2_BF16)},
          {"i8mm", has(AT_HWCAP2, HWCAP2_I8MM)}};
#else
  return {};
#endif
}

[[maybe_unused]] bool request_tiles() { return false; }

#endif

}  // namespace

bool CpuFeatures::has(std::string_view name) const {
  return std::ranges::any_of(all, [=](const CpuFeature& feature) { return feature.name == name && feature.present; });
}

CpuFeatures find_cpu_features(const std::string& cap) {
  const Level level = level_of(cap);
  CpuFeatures f;
  f.all = detect();
  f.cap = cap;
#if defined(__aarch64__)
  f.neon_bf16 = level >= Level::neon_bf16 && f.has("bf16");
  f.neon_fp16 = level >= Level::neon_bf16 && f.has("asimdhp");
#else
  f.f16c = level >= Level::avx2 && f.has("f16c");
  f.avx2 = f.f16c && f.has("avx2") && f.has("fma");
  f.avx512 = level >= Level::avx512 && f.avx2 && f.has("avx512f") && f.has("avx512bw") && f.has("avx512dq") &&
             f.has("avx512vl");
  f.avx512_bf16 = level >= Level::avx512_bf16 && f.avx512 && f.has("avx512_bf16");
  f.avx512_fp16 = level >= Level::avx512_bf16 && f.avx512 && f.has("avx512_fp16");
  f.amx_bf16 = level >= Level::amx && f.avx512 && f.has("amx_tile") && f.has("amx_bf16") && request_tiles();
#endif
  return f;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = [] {
    const char* cap = std::getenv("HALFSTEP_ISA");
    return find_cpu_features(cap ? cap : "");
  }();
  return features;
}

int rank_of_bf16_pairs(int widening) {
#if defined(__x86_64__)
  unsigned largest = 0, b = 0, c = 0, d = 0;
  __get_cpuid(0, &largest, &b, &c, &d);
  if (b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx) return widening - 1;
#endif
  return widening + 5;
}

bool has_fast_bf16_pairs() {
  static const bool are_fast = rank_of_bf16_pairs(0) > 0;  // asking the processor may take a microsecond
  return cpu_features().avx512_bf16 && are_fast;
}

bool multiplies_bf16_faster() { return cpu_features().amx_bf16 || has_fast_bf16_pairs(); }

}  // namespace hs
