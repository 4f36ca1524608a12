// What this machine's processor can do beyond the instructions that the compiler was told about. Kernels that use such
// instructions are compiled for them function by function, and say so in `supported`: one binary holds them all.
// CPU files only.
//
// HALFSTEP_ISA=x86-64|avx2|avx512|avx512_bf16|amx in the environment caps what is chosen at run time: variants of
// kernels, conversions between types, packing. It does not reach what the compiler was told about (-march, which
// HALFSTEP_NATIVE sets and kernels/cpu/simd.h uses): for a binary without such code build with -D HALFSTEP_NATIVE=OFF.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hs {

// A set of instructions, named as Linux spells it: avx512f, amx_bf16.
struct CpuFeature {
  std::string name;
  bool present;  // this processor has it, and the system saves its registers
};

struct CpuFeatures {
  std::vector<CpuFeature> all;  // that kernels may care about, present or not
  std::string cap;              // HALFSTEP_ISA; empty: none

  // What kernels ask for: it is present, and the cap allows it.
  bool f16c = false;         // conversions between f16 and f32
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // dot products of bf16 pairs; implies avx512
  bool amx_bf16 = false;     // tile products of bf16, permitted by the system; implies avx512

  bool has(std::string_view name) const;  // one of `all` that is present
};

// Looked for once. Throws Error (usage) if HALFSTEP_ISA names no set of instructions: every call of a kernel on the CPU
// asks, so that it is noticed before threads start.
const CpuFeatures& cpu_features();

// The same for any cap; "" is none.
CpuFeatures find_cpu_features(const std::string& cap);

}  // namespace hs

// In front of a function that is called only where cpu_features() says so.
#if defined(__x86_64__)
#define HS_TARGET_F16C [[gnu::target("avx,f16c")]]
#define HS_TARGET_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]]
#define HS_TARGET_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]]
#endif
